"""Collection of the data of a report from the files of a session, without changing the files."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from coterie.agents.events.agent_events import Finished, RunStarted
from coterie.agents.events.event_reader import LineUnreadable, SessionEvent
from coterie.agents.events.layer_events import CacheBroke
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided, ApprovalRejected
from coterie.mailbox.contract import Member
from coterie.mailbox.roster import FileRoster, RosterFailed
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.gateway.cache_savings import cost_alternatives
from coterie.orchestrator.gateway.cost_totals import TURN, group_costs, sum_costs
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.report.agent_timelines import TimelineBuilders
from coterie.orchestrator.report.mail_deliveries import DeliveryCollector, read_mail_items
from coterie.orchestrator.report.notable_events import dead_letter_events, to_notable_event
from coterie.orchestrator.report.report_data import (
    ApprovalAnswer,
    ApprovalSummary,
    BilledRequest,
    NotableEvent,
    ReportCosts,
    SessionFacts,
    UnreadableFile,
)
from coterie.orchestrator.session.overview import session_state
from coterie.session_directory import MAIN, ROSTER_FILE, SessionDirectory


@attrs.define(eq=False)
class EventCollector:
    """Collector of report data from the events of a session, which are passed to `handle` one after another."""

    timelines: TimelineBuilders = attrs.field(factory=TimelineBuilders)
    deliveries: DeliveryCollector = attrs.field(factory=DeliveryCollector)
    notables: list[NotableEvent] = attrs.field(factory=list)
    breaks: defaultdict[str, list[tuple[float, CacheBroke]]] = attrs.field(factory=lambda: defaultdict(list))
    approvals: dict[str, ApprovalSummary] = attrs.field(factory=dict)
    unread: list[UnreadableFile] = attrs.field(factory=list)
    finished: Finished | None = None
    """Event at the end of the last run of the lead (first agent of the session); None until that run has ended."""
    first: float | None = None
    last: float = 0.0
    """Time of the last event in seconds since 1970; `first` is the time of the first event, None before any."""

    def handle(self, observed: SessionEvent) -> None:
        """Add one event to the data: timelines, mail, notable events, cache misses, approvals and damaged lines."""
        if observed.at:
            self.first = observed.at if self.first is None else min(self.first, observed.at)
            self.last = max(self.last, observed.at)
        self.timelines.handle(observed)
        self.deliveries.handle(observed)
        if (found := to_notable_event(observed)) is not None:
            self.notables.append(found)
        match observed.event:
            case CacheBroke() as event:
                self.breaks[observed.agent].append((observed.at, event))
            case ApprovalAsked() | ApprovalDecided() | ApprovalRejected() as event:
                self._record_approval(event, observed.at)
            case LineUnreadable() as event:
                self.unread.append(UnreadableFile(where=f"{event.file}, line {event.line}", reason=event.reason))
            case RunStarted() if observed.agent == MAIN:
                self.finished = None
            case Finished() as event if observed.agent == MAIN:
                self.finished = event
            case _:
                pass

    def _record_approval(self, event: ApprovalAsked | ApprovalDecided | ApprovalRejected, at: float) -> None:
        known = self.approvals.get(event.id) or ApprovalSummary(id=event.id, at=None)
        match event:
            case ApprovalAsked():
                known = attrs.evolve(known, at=at, what=event.what, by=event.by, subject=event.subject)
                known = attrs.evolve(known, agent=event.name, incarnation=event.incarnation)
            case ApprovalDecided():
                answer = ApprovalAnswer(at=at, verdict=event.verdict, by=event.by, text=event.feedback)
                known = attrs.evolve(known, agent=known.agent or event.name, answers=(*known.answers, answer))
            case ApprovalRejected():
                answer = ApprovalAnswer(at=at, verdict="refused", by=event.by, text=event.reason)
                known = attrs.evolve(known, answers=(*known.answers, answer))
        self.approvals[event.id] = known


def collect_report(session: SessionDirectory, now: float) -> SessionFacts:
    """Read the files of *session* and return the data of its report; *now* is the present time. Blocks on the disk.

    `unread` of the result names damaged lines, and a ledger, list of agents or mailbox that cannot be read. Raises
    `OSError` if an event log or transcript cannot be read at all.
    """
    collected = EventCollector()
    for observed in read_session(session.directory):
        collected.handle(observed)
    finished = collected.finished
    state = session_state(session, is_finished=finished is not None)
    is_alive = state == "running"
    members, roster = _members(session)
    letters, mail = read_mail_items(session, collected.deliveries)
    lines, ledger = _ledger(session)
    last = max(session.started, collected.last)
    return SessionFacts(
        session=session,
        state=state,
        reason=None if finished is None or is_alive else finished.reason,
        error=None if finished is None or is_alive else finished.error,
        read_at=now,
        first=session.started if collected.first is None else collected.first,
        last=max(now, last) if is_alive else last,
        agents=tuple(collected.timelines.build(members, now=now if is_alive else None)),
        letters=tuple(letters),
        requests=tuple(_requests(lines, collected.breaks)),
        costs=_costs(lines),
        approvals=tuple(collected.approvals.values()),
        notables=tuple(sorted([*collected.notables, *dead_letter_events(letters)], key=lambda each: each.at)),
        unread=(*collected.unread, *roster, *mail, *ledger),
        result=None if finished is None else finished.result,
    )


def _members(session: SessionDirectory) -> tuple[Mapping[str, Member], list[UnreadableFile]]:
    try:
        return FileRoster(session.directory / ROSTER_FILE).members(), []
    except RosterFailed as exc:
        return {}, [UnreadableFile(where=ROSTER_FILE, reason=exc.reason)]


def _ledger(session: SessionDirectory) -> tuple[Sequence[LedgerEntry], list[UnreadableFile]]:
    try:
        reading = read_ledger(session.directory / LEDGER)
    except FileNotFoundError:
        return (), []  # no model call yet
    except OSError as exc:
        return (), [UnreadableFile(where=LEDGER, reason=str(exc.strerror or exc))]
    return reading.lines, [
        UnreadableFile(where=f"{LEDGER}, line {damage.line}", reason=damage.reason) for damage in reading.damaged
    ]


def _costs(lines: Sequence[LedgerEntry]) -> ReportCosts:
    return ReportCosts(
        agents=tuple(group_costs(lines, "agent")),
        purposes=tuple(group_costs(lines, "purpose")),
        models=tuple(group_costs(lines, "model")),
        total=sum_costs(lines),
        alternatives=cost_alternatives(lines),
    )


def _requests(
    lines: Sequence[LedgerEntry], breaks: Mapping[str, Sequence[tuple[float, CacheBroke]]]
) -> Iterator[BilledRequest]:
    """Yield *lines* (paid calls), main-loop calls with the cache miss event of equal read tokens and nearest time."""
    # Both are written by different processes at about the same time; both contain the number of tokens read.
    turns: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        if line.purpose == TURN and line.agent in breaks:
            turns[line.agent, line.usage.read].append(number)
    causes: dict[int, CacheBroke] = {}
    for agent, told in breaks.items():
        for at, event in told:
            if fitting := turns[agent, event.read_now]:
                nearest = min(fitting, key=lambda number: abs(lines[number].at - at))
                fitting.remove(nearest)
                causes[nearest] = event
    for number, line in enumerate(lines):
        yield BilledRequest(line=line, broke=causes.get(number))
