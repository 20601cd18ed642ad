"""Sample transcript turns, messages and events of a session for tests of recording."""

from pathlib import Path
from typing import Any

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import SessionEvent, make_session_event
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.envelope import Envelope, Recipient, Sender, SenderKind
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.transcript_turns import AgentTurns, ModelTurn, RecordedDelivery

SESSION = "20261117-141432-ccf95c"


def make_placeholders() -> Placeholders:
    return Placeholders(project=Path("/p"), session=Path("/s"), home=Path("/h"))


def reply_turn(
    turn: int, at: float, *blocks: dict[str, Any], stop: str = "end_turn", asked: float | None = None
) -> ModelTurn:
    """A reply that took a tenth of a second."""
    return ModelTurn(
        turn=turn, blocks=blocks, stop_reason=stop, asked=at - 0.1 if asked is None else asked, at=at, inputs=99
    )


def call(tool: str, id: str = "toolu_1", **given: Any) -> dict[str, Any]:  # noqa: A002 - the API's word
    return {"type": "tool_use", "id": id, "name": tool, "input": given}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def delivery(id: str, turn: int, at: float, *, is_shown: bool = True) -> RecordedDelivery:  # noqa: A002 - the mailbox's word
    return RecordedDelivery(id=id, turn=turn, at=at, is_shown=is_shown)


def agent_turns(
    name: str, *replies: ModelTurn, deliveries: list[RecordedDelivery] | None = None, inputs: list[str] | None = None
) -> AgentTurns:
    return AgentTurns(
        name=name, replies=list(replies), count=len(replies), deliveries=deliveries or [], inputs=inputs or []
    )


def message(
    id: str,  # noqa: A002 - the mailbox's word
    sender: str,
    to: str,
    created: float,
    *,
    kind: SenderKind = "peer",
    body: str = "hello",
) -> Envelope:
    return Envelope(
        id=id,  # type: ignore[arg-type]  # short ids are easier to read
        sender=Sender(name=sender, incarnation=1, session=SESSION, kind=kind),
        recipient=Recipient(name=to),
        sequence=1,
        body=body,
        created=created,
    )


def session_event(agent: str, at: float, event: Event) -> SessionEvent:
    return make_session_event(event, session=SESSION, agent=agent, at=at)


def changed(name: str, at: float, state: Any, *, incarnation: int = 1, what: str = "") -> SessionEvent:
    return session_event("root", at, AgentChanged(name=name, incarnation=incarnation, state=state, what=what))
