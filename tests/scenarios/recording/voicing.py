"""Voices that a test makes up, and events of a session that never was."""

from typing import Any

from coterie.agents.events import AgentChanged, Event
from coterie.mailbox.envelope import Envelope, Recipient, Sender, SenderKind
from coterie.orchestrator.events.observed import Observed, observe
from coterie.scenarios.recording.voices import Delivery, Said, Voice

SESSION = "20261117-141432-ccf95c"


def said(turn: int, at: float, *blocks: dict[str, Any], stop: str = "end_turn", asked: float | None = None) -> Said:
    """A reply that took a tenth of a second."""
    return Said(turn=turn, blocks=blocks, stop_reason=stop, asked=at - 0.1 if asked is None else asked, at=at, heard=99)


def call(tool: str, id: str = "toolu_1", **given: Any) -> dict[str, Any]:  # noqa: A002 - the API's word
    return {"type": "tool_use", "id": id, "name": tool, "input": given}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def delivery(id: str, turn: int, at: float, *, is_shown: bool = True) -> Delivery:  # noqa: A002 - the mailbox's word
    return Delivery(id=id, turn=turn, at=at, is_shown=is_shown)


def voice(name: str, *replies: Said, deliveries: list[Delivery] | None = None, heard: list[str] | None = None) -> Voice:
    return Voice(name=name, replies=list(replies), count=len(replies), deliveries=deliveries or [], heard=heard or [])


def letter(
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


def told(agent: str, at: float, event: Event) -> Observed:
    return observe(event, session=SESSION, agent=agent, at=at)


def changed(name: str, at: float, state: Any, *, incarnation: int = 1, what: str = "") -> Observed:
    return told("root", at, AgentChanged(name=name, incarnation=incarnation, state=state, what=what))
