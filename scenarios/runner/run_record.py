"""Record of a finished scenario run, read from the files of its sessions, and its presentation as log lines."""

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
"""Number of events that a failure shows before and after the event that it concerns."""
SHOWN = 160
"""Maximum number of characters of the log line of an event."""
_HEAD = ("v", "at", "session", "agent", "kind")


@attrs.frozen(kw_only=True)
class ScenarioFailure:
    """One reason why a scenario run failed, such as an expectation that is not met or a fault that was not applied."""

    reason: str
    line: int | None = None
    """Line of the expectation or action in the scenario file; None if the failure belongs to no line."""
    around: tuple[str, ...] = ()
    """Log lines of events, or lines of output, that may explain the failure."""


@attrs.frozen(kw_only=True)
class ScenarioRun:
    """Record of one run, against which expectations are checked: events, mail, costs, states, exit codes, leftovers."""

    project: Path
    sessions: tuple[str, ...]
    """Ids of all sessions that the run started."""
    events: Sequence[SessionEvent] = ()
    """Events of all agents and the root (supervisor process) by time, without `text` events (parts of replies)."""
    mail: Sequence[MessageHop] = ()
    ledger: Sequence[LedgerEntry] = ()
    states: Mapping[str, str] = attrs.field(factory=dict)
    """Last recorded state of each agent, by agent name."""
    exit_codes: tuple[int | None, ...] = ()
    """Exit code of the command of each step; None if the time limit of the scenario killed it."""
    errors: str = ""
    """Last part of the standard error of all commands of the run."""
    missed: Sequence[ScenarioFailure] = ()
    """One failure for each user action and each fault that was not carried out."""
    injected_faults: Sequence[InjectedFault] = ()
    """Mail and disk faults that were injected into processes of the run."""
    findings: tuple[str, ...] = ()
    """Processes, and problems found by `coterie doctor`, that were left after all processes had time to end."""


def failure_lines(failures: Iterable[ScenarioFailure], source: Path) -> Iterator[str]:
    """Yield the lines of a report on *failures*: each with its line in the file *source*, then the events around it."""
    shown: tuple[str, ...] = ()
    for failure in failures:
        where = "" if failure.line is None else f"{source}, line {failure.line}: "
        yield f"  {where}{failure.reason}"
        # Events shared by consecutive failures are shown once.
        yield from (f"    {line}" for line in (failure.around if failure.around != shown else ()))
        shown = failure.around


def log_context(events: Sequence[SessionEvent], index: int) -> tuple[str, ...]:
    """Return log lines of the event at *index*, marked with `>`, and of a few (`AROUND`) events before and after it."""
    first = max(0, index - AROUND)
    shown = enumerate(events[first : index + AROUND + 1], first)
    return tuple(f"{'>' if number == index else ' '} {brief(event)}" for number, event in shown)


def log_tail(events: Sequence[SessionEvent]) -> tuple[str, ...]:
    """Return log lines of the last few (`2 * AROUND`) of *events*, to show them with a failure."""
    return tuple(f"  {brief(event)}" for event in events[-2 * AROUND :])


def brief(observed: SessionEvent) -> str:
    """Return the log line of an event: agent, kind and fields as JSON, cut off after `SHOWN` characters."""
    members = {key: value for key, value in observed.members.items() if key not in _HEAD}
    return one_line(f"{observed.agent}: {observed.kind} {msgspec.json.encode(members).decode()}", SHOWN)


async def sweep_mail(session: SessionDirectory, clock: Clock) -> list[MessageHop]:
    """Return all steps of all messages of *session* by time: stored, delivered, held or dead-lettered."""
    with SessionMail.open(session, clock) as session_mail, closing(MessageHistory.of(session_mail)) as history:
        return await history.sweep()


def without_text_events(events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """Return *events* without events of kind `text` (parts of streamed replies), whose text the messages repeat."""
    return [event for event in events if event.kind != "text"]
