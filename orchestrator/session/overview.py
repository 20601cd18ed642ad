"""Overview of a session, running or not: its state, its agents and its cost, read from its files."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.events.agent_events import Finished, ProgressSummarized
from coterie.agents.events.event_reader import last_agent_changes, read_log_backwards
from coterie.mailbox.contract import Member
from coterie.mailbox.roster import FileRoster, RosterFailed
from coterie.mailbox.transports.file.wakeup import LOCK_FILE
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.session.root_lock import ROOT_RECORD, find_root, has_dead_root
from coterie.session_directory import EVENT_LOG, MAIL_DIRECTORY, MAIN, ROSTER_FILE, SessionDirectory

SessionState = Literal["running", "ended", "interrupted"]
"""ended: not running, and its lead (first agent) has finished. interrupted: not running, killed before its end."""

END_STATES = ("done", "failed", "killed")
"""Values of the state in `AgentChanged` events that mean that the agent has ended."""


@attrs.frozen(kw_only=True)
class AgentSummary:
    """Name, state and current work of one agent, for the overview of its session."""

    name: str
    incarnation: int
    state: str
    """State in the root's last event, else in the list of agents; `interrupted` if not ended and no root runs."""
    progress: str | None = None
    """Latest summary of the work of a running agent, such as "Running the tests"; None if there is no summary."""


@attrs.frozen(kw_only=True)
class SessionOverview:
    """State, agents and cost of one session at the time when its files were read."""

    session: SessionDirectory
    state: SessionState
    reason: str | None
    """End reason of the lead's last run, such as "completed"; None if the session runs or that run did not end."""
    agents: tuple[AgentSummary, ...]
    cost: Decimal
    """Cost of all model calls of the session in dollars, exact."""


def read_overview(session: SessionDirectory) -> SessionOverview:
    """Read state, agents and cost of *session* from its files; skip unreadable records. Blocks. Raises `OSError`."""
    finished = _last_finished(session.directory / "agents" / MAIN / EVENT_LOG)
    state = session_state(session, is_finished=finished is not None)
    is_alive, ledger = state == "running", session.directory / LEDGER
    return SessionOverview(
        session=session,
        state=state,
        reason=None if is_alive or finished is None else finished.reason,
        agents=_agents(session, is_alive=is_alive),
        cost=sum_costs(read_ledger(ledger).lines).cost if ledger.exists() else Decimal(0),
    )


def session_state(session: SessionDirectory, *, is_finished: bool) -> SessionState:
    """Return the state of *session*; *is_finished* is True if the last run of its lead has ended. Raises `OSError`."""
    if is_running(session):
        return "running"
    return "ended" if is_finished and not has_dead_root(session) else "interrupted"


def is_running(session: SessionDirectory) -> bool:
    """True if the root process of *session* is alive, or without a root record, if a process locks an agent's inbox."""
    if (session.directory / ROOT_RECORD).exists():
        return find_root(session) is not None
    return any(_is_locked(path) for path in (session.directory / MAIL_DIRECTORY).glob(f"*/{LOCK_FILE}"))


def read_members(session: SessionDirectory) -> Mapping[str, Member]:
    """Return all agents of *session* by name, also ended ones; empty if the file with the list cannot be read."""
    try:
        return FileRoster(session.directory / ROSTER_FILE).members()
    except RosterFailed:
        return {}


def _agents(session: SessionDirectory, *, is_alive: bool) -> tuple[AgentSummary, ...]:
    changes = last_agent_changes(session)
    summaries = []
    for member in read_members(session).values():
        change, has_ended = changes.get((member.name, member.incarnation)), member.state == "ended"
        state: str = change.state if change is not None and has_ended == (change.state in END_STATES) else member.state
        if not is_alive and not has_ended:
            state = "interrupted"
        log = session.agent_directory(member.name) / EVENT_LOG
        last = None
        if state == "running":
            last = next(read_log_backwards(log, b'"kind":"progress"', b'"kind":"started"'), None)
        progress = last.event.text if last is not None and isinstance(last.event, ProgressSummarized) else None
        summaries.append(AgentSummary(name=member.name, incarnation=member.incarnation, state=state, progress=progress))
    return tuple(summaries)


def _is_locked(path: Path) -> bool:
    """True if a process holds a `flock` on *path*. Read from /proc/locks, because an attempt would take the lock."""
    inode = str(path.stat().st_ino)
    lines = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode for fields in lines)


def _last_finished(path: Path) -> Finished | None:
    """Return the `Finished` event of the last run in the event log *path*; None if that run has not ended."""
    runs = (event for event in read_log_backwards(path) if event.kind in ("started", "finished"))
    last = next(runs, None)
    return last.event if last is not None and isinstance(last.event, Finished) else None
