"""Reading a session for a report: nothing is changed, and what cannot be read is said."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from coterie.agents.events import AnswerRefused, ApprovalAsked, ApprovalDecided, CacheBroke, Finished, Started
from coterie.mailbox.contract import Member
from coterie.mailbox.roster import FileRoster, RosterFailed
from coterie.orchestrator.events.observed import LineUnreadable, Observed
from coterie.orchestrator.events.reader import read_session
from coterie.orchestrator.ledger.ledger import LEDGER, read_ledger
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.ledger.sharing import alternatives
from coterie.orchestrator.ledger.spending import TURN, rows, total
from coterie.orchestrator.overview import state_of
from coterie.orchestrator.post_office import ROSTER
from coterie.orchestrator.reporting.facts import Answer, Approval, Costs, Notable, Request, SessionFacts, Unread
from coterie.orchestrator.reporting.letters import Deliveries, read_letters
from coterie.orchestrator.reporting.lives import Lives
from coterie.orchestrator.reporting.notable import dead_notables, notable
from coterie.orchestrator.session import MAIN, Session


@attrs.define(eq=False)
class Hearing:
    """What is heard while the events of a session are read, once and in their order."""

    lives: Lives = attrs.field(factory=Lives)
    deliveries: Deliveries = attrs.field(factory=Deliveries)
    notables: list[Notable] = attrs.field(factory=list)
    breaks: defaultdict[str, list[tuple[float, CacheBroke]]] = attrs.field(factory=lambda: defaultdict(list))
    approvals: dict[str, Approval] = attrs.field(factory=dict)
    unread: list[Unread] = attrs.field(factory=list)
    finished: Finished | None = None
    """The end of the last run of the agent that the user talks to; None if it has not ended."""
    first: float | None = None
    last: float = 0.0
    """When something happened for the first and for the last time."""

    def hear(self, observed: Observed) -> None:
        """One event."""
        if observed.at:
            self.first = observed.at if self.first is None else min(self.first, observed.at)
            self.last = max(self.last, observed.at)
        self.lives.hear(observed)
        self.deliveries.hear(observed)
        if (found := notable(observed)) is not None:
            self.notables.append(found)
        match observed.event:
            case CacheBroke() as event:
                self.breaks[observed.agent].append((observed.at, event))
            case ApprovalAsked() | ApprovalDecided() | AnswerRefused() as event:
                self._approve(event, observed.at)
            case LineUnreadable() as event:
                self.unread.append(Unread(where=f"{event.file}, line {event.line}", reason=event.reason))
            case Started() if observed.agent == MAIN:
                self.finished = None
            case Finished() as event if observed.agent == MAIN:
                self.finished = event
            case _:
                pass

    def _approve(self, event: ApprovalAsked | ApprovalDecided | AnswerRefused, at: float) -> None:
        known = self.approvals.get(event.id) or Approval(id=event.id, at=None)
        match event:
            case ApprovalAsked():
                known = attrs.evolve(known, at=at, what=event.what, by=event.by, subject=event.subject)
                known = attrs.evolve(known, agent=event.name, incarnation=event.incarnation)
            case ApprovalDecided():
                answer = Answer(at=at, verdict=event.verdict, by=event.by, text=event.feedback)
                known = attrs.evolve(known, agent=known.agent or event.name, answers=(*known.answers, answer))
            case AnswerRefused():
                answer = Answer(at=at, verdict="refused", by=event.by, text=event.reason)
                known = attrs.evolve(known, answers=(*known.answers, answer))
        self.approvals[event.id] = known


def gather(session: Session, now: float) -> SessionFacts:
    """Read *session* as it is *now*, by its own clock; changes nothing. Blocks on the disk.

    A damaged line, and a ledger, a roster or a mailbox that cannot be read, are named in what is returned, and hide
    nothing else. Raises `OSError` for an event log or a transcript that cannot be read at all.
    """
    hearing = Hearing()
    for observed in read_session(session.directory):
        hearing.hear(observed)
    finished = hearing.finished
    state = state_of(session, is_finished=finished is not None)
    is_alive = state == "running"
    members, roster = _members(session)
    letters, mail = read_letters(session, hearing.deliveries)
    lines, ledger = _ledger(session)
    last = max(session.started, hearing.last)
    return SessionFacts(
        session=session,
        state=state,
        reason=None if finished is None or is_alive else finished.reason,
        error=None if finished is None or is_alive else finished.error,
        read_at=now,
        first=session.started if hearing.first is None else hearing.first,
        last=max(now, last) if is_alive else last,
        agents=tuple(hearing.lives.told(members, now=now if is_alive else None)),
        letters=tuple(letters),
        requests=tuple(_requests(lines, hearing.breaks)),
        costs=_costs(lines),
        approvals=tuple(hearing.approvals.values()),
        notables=tuple(sorted([*hearing.notables, *dead_notables(letters)], key=lambda each: each.at)),
        unread=(*hearing.unread, *roster, *mail, *ledger),
        result=None if finished is None else finished.result,
    )


def _members(session: Session) -> tuple[Mapping[str, Member], list[Unread]]:
    try:
        return FileRoster(session.directory / ROSTER).members(), []
    except RosterFailed as exc:
        return {}, [Unread(where=ROSTER, reason=exc.reason)]


def _ledger(session: Session) -> tuple[Sequence[LedgerLine], list[Unread]]:
    try:
        reading = read_ledger(session.directory / LEDGER)
    except FileNotFoundError:
        return (), []  # no model was asked yet
    except OSError as exc:
        return (), [Unread(where=LEDGER, reason=str(exc.strerror or exc))]
    return reading.lines, [
        Unread(where=f"{LEDGER}, line {damage.line}", reason=damage.reason) for damage in reading.damaged
    ]


def _costs(lines: Sequence[LedgerLine]) -> Costs:
    return Costs(
        agents=tuple(rows(lines, "agent")),
        purposes=tuple(rows(lines, "purpose")),
        models=tuple(rows(lines, "model")),
        total=total(lines),
        alternatives=alternatives(lines),
    )


def _requests(
    lines: Sequence[LedgerLine], breaks: Mapping[str, Sequence[tuple[float, CacheBroke]]]
) -> Iterator[Request]:
    """The lines of the ledger, each with the break that its agent told of it."""
    # The two are written by different processes at about the same moment; how much was read is in both.
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
        yield Request(line=line, broke=causes.get(number))
