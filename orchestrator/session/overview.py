"""State of a session, running or not: its agents and its cost."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.events.agent_events import Finished, ProgressSummarized
from coterie.agents.events.event_reader import last_agent_changes, read_log_backwards
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.contract import Member
from coterie.mailbox.roster import FileRoster, RosterFailed
from coterie.mailbox.transports.file.wakeup import LOCK_FILE
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.session.root_lock import ROOT_RECORD, find_root, has_dead_root
from coterie.session_directory import EVENT_LOG, MAIL_DIRECTORY, MAIN, ROSTER_FILE, SessionDirectory

SessionState = Literal["running", "ended", "interrupted"]
"""interrupted: nobody is at work on it, and nobody has said that it is finished."""

END_STATES = ("done", "failed", "killed")
"""What the root tells of an agent that has ended."""


@attrs.frozen(kw_only=True)
class AgentSummary:
    """One agent of a session."""

    name: str
    incarnation: int
    state: str
    """What the root last told of it, or else the roster; `interrupted` where that is more than can be."""
    progress: str | None = None
    """What it is at, in a few words, if it runs and somebody has said so."""


@attrs.frozen(kw_only=True)
class SessionOverview:
    """One session."""

    session: SessionDirectory
    state: SessionState
    reason: str | None
    """Of one that has ended: how its last run did."""
    agents: tuple[AgentSummary, ...]
    cost: Decimal
    """Dollars, exact."""


def read_overview(session: SessionDirectory) -> SessionOverview:
    """How *session* stands. Files that cannot be read say nothing. Blocks on the disk; raises `OSError`."""
    finished = _last_finished(session.directory / "agents" / MAIN / EVENT_LOG)
    state = session_state(session, is_finished=finished is not None)
    is_alive = state == "running"
    return SessionOverview(
        session=session,
        state=state,
        reason=None if is_alive or finished is None else finished.reason,
        agents=_agents(session, is_alive=is_alive),
        cost=_cost(session.directory / LEDGER),
    )


def session_state(session: SessionDirectory, *, is_finished: bool) -> SessionState:
    """How *session* stands, if the agent that the user talks to *is_finished* with its last run. Raises `OSError`."""
    if is_running(session):
        return "running"
    return "ended" if is_finished and not has_dead_root(session) else "interrupted"


def is_running(session: SessionDirectory) -> bool:
    """Whether somebody is at work on *session*: its root, or without one an agent that reads its mail."""
    if (session.directory / ROOT_RECORD).exists():
        return find_root(session) is not None
    return any(_is_locked(path) for path in (session.directory / MAIL_DIRECTORY).glob(f"*/{LOCK_FILE}"))


def read_members(session: SessionDirectory) -> Mapping[str, Member]:
    """Who is on the roster; nobody where that cannot be read."""
    try:
        return FileRoster(session.directory / ROSTER_FILE).members()
    except RosterFailed:
        return {}


def _agents(session: SessionDirectory, *, is_alive: bool) -> tuple[AgentSummary, ...]:
    told = last_agent_changes(session)
    glances = (
        _summarize(member, told.get((member.name, member.incarnation)), is_alive=is_alive)
        for member in read_members(session).values()
    )
    return tuple(_with_progress(session, glance) for glance in glances)


def _summarize(member: Member, told: AgentChanged | None, *, is_alive: bool) -> AgentSummary:
    has_ended = member.state == "ended"
    state: str = told.state if told is not None and has_ended == (told.state in END_STATES) else member.state
    if not is_alive and not has_ended:
        state = "interrupted"
    return AgentSummary(name=member.name, incarnation=member.incarnation, state=state)


def _with_progress(session: SessionDirectory, glance: AgentSummary) -> AgentSummary:
    if glance.state != "running":
        return glance
    return attrs.evolve(glance, progress=_last_progress(session.agent_directory(glance.name) / EVENT_LOG))


def _is_locked(path: Path) -> bool:
    """Whether somebody holds a `flock` on *path*; seen from the list of them, as to try would be to take it."""
    wanted = str(path.stat().st_ino)
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == wanted for fields in lines)


def _cost(path: Path) -> Decimal:
    try:
        return sum_costs(read_ledger(path).lines).cost
    except FileNotFoundError:
        return Decimal(0)


def _last_finished(path: Path) -> Finished | None:
    """How the last run in an event log ended; None if it did not."""
    kinds = (event for event in read_log_backwards(path) if event.kind in ("started", "finished"))
    last = next(kinds, None)
    return last.event if last is not None and isinstance(last.event, Finished) else None


def _last_progress(path: Path) -> str | None:
    """What the last run in an event log is at; None if nobody has said so."""
    last = next(read_log_backwards(path, b'"kind":"progress"', b'"kind":"started"'), None)
    return last.event.text if last is not None and isinstance(last.event, ProgressSummarized) else None
