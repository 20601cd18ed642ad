"""Record of a scenario run, read from the files of its sessions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import attrs
import msgspec

from coterie.agents.events.event_reader import SessionEvent
from coterie.clock import Clock
from coterie.mailbox.fault_injection import InjectedFault
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.message_history import MessageHistory, MessageHop
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.session_directory import SessionDirectory

AROUND = 4
"""Number of events shown before and after a failure."""
SHOWN = 160
"""Maximum length of a shown event."""
_HEAD = ("v", "at", "session", "agent", "kind")


@attrs.frozen(kw_only=True)
class ScenarioFailure:
    """A difference between a scenario's expectation and its run."""

    reason: str
    line: int | None = None
    """Line in the scenario file."""
    around: tuple[str, ...] = ()
    """Log lines of the events that may explain the failure."""


@attrs.frozen(kw_only=True)
class ScenarioRun:
    """Everything read from the files of one run."""

    project: Path
    sessions: tuple[str, ...]
    """Session ids."""
    events: Sequence[SessionEvent] = ()
    """Events of all agents, in order of time."""
    mail: Sequence[MessageHop] = ()
    ledger: Sequence[LedgerEntry] = ()
    states: Mapping[str, str] = attrs.field(factory=dict)
    """Last recorded state of each agent."""
    exit_codes: tuple[int | None, ...] = ()
    """Exit code of each command; None if the time limit ended it."""
    errors: str = ""
    """End of the commands' standard error."""
    missed: Sequence[ScenarioFailure] = ()
    """Actions and faults that were not carried out."""
    injected_faults: Sequence[InjectedFault] = ()
    """Mail and disk faults that were applied."""
    findings: tuple[str, ...] = ()
    """Findings of the doctor after all processes had time to end."""


def failure_lines(failures: Iterable[ScenarioFailure], source: Path) -> Iterator[str]:
    """Format failures with their lines in the file *source* and the events around them."""
    shown: tuple[str, ...] = ()
    for failure in failures:
        where = "" if failure.line is None else f"{source}, line {failure.line}: "
        yield f"  {where}{failure.reason}"
        # Events shared by consecutive failures are shown once.
        yield from (f"    {line}" for line in (failure.around if failure.around != shown else ()))
        shown = failure.around


def log_context(events: Sequence[SessionEvent], index: int) -> tuple[str, ...]:
    """Format the events around the one at *index*, which is marked with `>`."""
    first = max(0, index - AROUND)
    shown = enumerate(events[first : index + AROUND + 1], first)
    return tuple(f"{'>' if number == index else ' '} {brief(event)}" for number, event in shown)


def log_tail(events: Sequence[SessionEvent]) -> tuple[str, ...]:
    """Format the last events."""
    return tuple(f"  {brief(event)}" for event in events[-2 * AROUND :])


def brief(observed: SessionEvent) -> str:
    """Format an event as one short line."""
    members = {key: value for key, value in observed.members.items() if key not in _HEAD}
    return one_line(f"{observed.agent}: {observed.kind} {msgspec.json.encode(members).decode()}", SHOWN)


async def sweep_mail(session: SessionDirectory, clock: Clock) -> list[MessageHop]:
    """Return all steps of the messages of *session*, in order."""
    with SessionMail.open(session, clock) as session_mail, closing(MessageHistory.of(session_mail)) as history:
        return await history.sweep()


def without_text_events(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """Return *events* without text deltas, which repeat the text of messages."""
    return [event for event in events if event.kind != "text"]
