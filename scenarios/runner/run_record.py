"""Record of a scenario run, read from the files of its sessions."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs
import msgspec

from coterie.agents.events.event_reader import SessionEvent
from coterie.mailbox.fault_injection import InjectedFault
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.gateway.ledger import LedgerEntry

AROUND = 4
"""Events on each side of one that is shown."""
SHOWN = 160
"""Characters of an event that are shown."""
_HEAD = ("v", "at", "session", "agent", "kind")


@attrs.frozen(kw_only=True)
class ScenarioFailure:
    """Something that did not come as the story wants it."""

    reason: str
    line: int | None = None
    """Of the story's file."""
    around: tuple[str, ...] = ()
    """Events that may tell why, as lines."""


@attrs.frozen(kw_only=True)
class ScenarioRun:
    """One play of a story."""

    project: Path
    sessions: tuple[str, ...]
    """Ids."""
    events: Sequence[SessionEvent] = ()
    """Of all agents, merged by time."""
    mail: Sequence[MessageHop] = ()
    ledger: Sequence[LedgerEntry] = ()
    states: Mapping[str, str] = attrs.field(factory=dict)
    """What the root last told of each agent."""
    exit_codes: tuple[int | None, ...] = ()
    """Of each command; None for one that was ended by the limit."""
    errors: str = ""
    """The end of what the commands wrote to standard error."""
    missed: Sequence[ScenarioFailure] = ()
    """What was to be done to it, and was not."""
    strikes: Sequence[InjectedFault] = ()
    """What went wrong with mail and files, because the story wants it."""
    findings: tuple[str, ...] = ()
    """What the doctor found once everything had ended, and time to be gone."""


def log_context(events: Sequence[SessionEvent], index: int) -> tuple[str, ...]:
    """The events next to the one at *index*, which is pointed at."""
    first = max(0, index - AROUND)
    shown = enumerate(events[first : index + AROUND + 1], first)
    return tuple(f"{'>' if number == index else ' '} {brief(event)}" for number, event in shown)


def log_tail(events: Sequence[SessionEvent]) -> tuple[str, ...]:
    """The last events."""
    return tuple(f"  {brief(event)}" for event in events[-2 * AROUND :])


def brief(observed: SessionEvent) -> str:
    """An event on one short line."""
    members = {key: value for key, value in observed.members.items() if key not in _HEAD}
    return one_line(f"{observed.agent}: {observed.kind} {msgspec.json.encode(members).decode()}", SHOWN)


def without_text_events(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """*events* without the parts of replies, which say again what messages say."""
    return [event for event in events if event.kind != "text"]
