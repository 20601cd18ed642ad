"""Sample scenario files, and run records made from events."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_log import AnyEvent
from coterie.agents.events.event_reader import DERIVED_EVENTS, SessionEvent, make_session_event
from coterie.agents.loop.model.usage import Usage
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Recipient, Sender
from coterie.orchestrator.cli.mail.message_history import HopKind, MessageHop
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.scenarios.runner.run_record import ScenarioRun

WHOLE = """\
about: A scenario.
task: Look at the door.
script:
  main:
    - tools: [{Agent: {name: scout, description: look, prompt: Look.}}]
    - It is open.
  scout: [Open.]
expect:
  - exit_code: 0
"""
"""A minimal scenario."""


def write_scenario(directory: Path, text: str) -> Path:
    path = directory / "scenario.yaml"
    path.write_text(text)
    return path


def seen(agent: str, kind: str, at: float = 1.0, **members: Any) -> SessionEvent:
    """An event as a reader sees it; members that are not given are whatever their type allows."""
    event = _make({"kind": kind, **_DEFAULTS.get(kind, {}), **members})
    return make_session_event(event, session="20260101-000000-abcdef", agent=agent, at=at)


def make_run_record(project: Path, *events: SessionEvent, **facts: Any) -> ScenarioRun:
    """A play in which these happened."""
    return ScenarioRun(project=project, sessions=("20260101-000000-abcdef",), events=events, **facts)


def make_mail_step(kind: HopKind, number: int, to: str = "main", envelope_kind: MessageKind = "message") -> MessageHop:
    id_ = MessageId(f"m{number}")
    envelope = Envelope(
        sender=Sender(name="scout", incarnation=1, session="s", kind="peer"),
        recipient=Recipient(name=to),
        sequence=number,
        kind=envelope_kind,
        body="x",
        created=1.0,
        id=id_,
    )
    return MessageHop(kind=kind, at=1.0, mailbox=to, id=id_, envelope=None if kind == "delivered" else envelope)


def make_ledger_entry(
    agent: str, cost: str, incarnation: int = 1, *, purpose: str = "turn", usage: Usage | None = None
) -> LedgerEntry:
    return LedgerEntry(
        at=1.0,
        agent=agent,
        incarnation=incarnation,
        purpose=purpose,
        model="m",
        usage=usage or Usage(),
        cost_usd=Decimal(cost),
    )


_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "started": {
        "session": "s",
        "incarnation": 1,
        "model": "m",
        "permission_mode": "default",
        "project": "/p",
        "tools": [],
    },
    "finished": {"reason": "completed", "result": "done", "turns": 1, "usage": {}, "cost_usd": "0.1"},
    "tool_started": {"id": "toolu_1", "name": "Read"},
    "tool_ended": {"id": "toolu_1", "name": "Read", "is_error": False, "seconds": 0.1, "characters": 1},
    "agent_changed": {"incarnation": 1, "state": "running"},
    "message": {"role": "assistant", "content": []},
    "delivered": {"ids": []},
    "retrying": {"error": "429", "seconds": 1.0},
    "approval_asked": {"id": "plan-1", "what": "plan", "incarnation": 1, "by": "lead", "subject": "x"},
}


def _make(members: dict[str, Any]) -> Event:
    presented = {kind.__struct_config__.tag: kind for kind in DERIVED_EVENTS}
    if (kind := presented.get(members["kind"])) is not None:
        made: Event = msgspec.convert(members, kind)
        return made
    told: Event = msgspec.convert(members, AnyEvent)
    return told
