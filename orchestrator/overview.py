"""A session at a glance, running or not: how it stands, who is in it, and what it has cost."""

import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.events import AgentChanged, Finished, Progress
from coterie.mailbox.contract import Member
from coterie.mailbox.file.bell import LOCK_FILE
from coterie.mailbox.roster import FileRoster, RosterFailed
from coterie.orchestrator.events.observed import Observed, read_told
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.ledger.ledger import LEDGER, read_ledger
from coterie.orchestrator.ledger.spending import total
from coterie.orchestrator.post_office import MAIL, ROSTER
from coterie.orchestrator.root_record import ROOT_RECORD, find_root, has_dead_root
from coterie.orchestrator.session import MAIN, Session

SessionState = Literal["running", "ended", "interrupted"]
"""interrupted: nobody is at work on it, and nobody has said that it is finished."""

ENDS = ("done", "failed", "killed")
"""What the root tells of an agent that has ended."""

TAIL = 1024 * 1024
"""Bytes at the end of an event log that are looked at; the longest result of a run is shorter."""


@attrs.frozen(kw_only=True)
class AgentGlance:
    """One agent of a session."""

    name: str
    incarnation: int
    state: str
    """What the root last told of it, or else the roster; `interrupted` where that is more than can be."""
    progress: str | None = None
    """What it is at, in a few words, if it runs and somebody has said so."""


@attrs.frozen(kw_only=True)
class Overview:
    """One session."""

    session: Session
    state: SessionState
    reason: str | None
    """Of one that has ended: how its last run did."""
    agents: tuple[AgentGlance, ...]
    cost: Decimal
    """Dollars, exact."""


def look_at(session: Session) -> Overview:
    """How *session* stands. Files that cannot be read say nothing. Blocks on the disk; raises `OSError`."""
    finished = _last_finished(session.directory / "agents" / MAIN / EVENT_LOG)
    state = state_of(session, is_finished=finished is not None)
    is_alive = state == "running"
    return Overview(
        session=session,
        state=state,
        reason=None if is_alive or finished is None else finished.reason,
        agents=_agents(session, is_alive=is_alive),
        cost=_cost(session.directory / LEDGER),
    )


def state_of(session: Session, *, is_finished: bool) -> SessionState:
    """How *session* stands, if the agent that the user talks to *is_finished* with its last run. Raises `OSError`."""
    if is_running(session):
        return "running"
    return "ended" if is_finished and not has_dead_root(session) else "interrupted"


def is_running(session: Session) -> bool:
    """Whether somebody is at work on *session*: its root, or without one an agent that reads its mail."""
    if (session.directory / ROOT_RECORD).exists():
        return find_root(session) is not None
    return any(_is_locked(path) for path in (session.directory / MAIL).glob(f"*/{LOCK_FILE}"))


def members_of(session: Session) -> Mapping[str, Member]:
    """Who is on the roster; nobody where that cannot be read."""
    try:
        return FileRoster(session.directory / ROSTER).members()
    except RosterFailed:
        return {}


def last_told(session: Session) -> dict[tuple[str, int], AgentChanged]:
    """What the root last told of each start of each agent, by name and incarnation. Blocks on the disk."""
    told: dict[tuple[str, int], AgentChanged] = {}
    for observed in read_backwards(session.directory / EVENT_LOG):
        if isinstance(event := observed.event, AgentChanged):
            told.setdefault((event.name, event.incarnation), event)
    return told


def _agents(session: Session, *, is_alive: bool) -> tuple[AgentGlance, ...]:
    told = last_told(session)
    glances = (
        _glance(member, told.get((member.name, member.incarnation)), is_alive=is_alive)
        for member in members_of(session).values()
    )
    return tuple(_with_progress(session, glance) for glance in glances)


def _glance(member: Member, told: AgentChanged | None, *, is_alive: bool) -> AgentGlance:
    has_ended = member.state == "ended"
    state: str = told.state if told is not None and has_ended == (told.state in ENDS) else member.state
    if not is_alive and not has_ended:
        state = "interrupted"
    return AgentGlance(name=member.name, incarnation=member.incarnation, state=state)


def _with_progress(session: Session, glance: AgentGlance) -> AgentGlance:
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
        return total(read_ledger(path).lines).cost
    except FileNotFoundError:
        return Decimal(0)


def _last_finished(path: Path) -> Finished | None:
    """How the last run in an event log ended; None if it did not."""
    kinds = (event for event in read_backwards(path) if event.kind in ("started", "finished"))
    last = next(kinds, None)
    return last.event if last is not None and isinstance(last.event, Finished) else None


def _last_progress(path: Path) -> str | None:
    """What the last run in an event log is at; None if nobody has said so."""
    last = next(read_backwards(path, b'"kind":"progress"', b'"kind":"started"'), None)
    return last.event.text if last is not None and isinstance(last.event, Progress) else None


def read_backwards(path: Path, *kinds: bytes) -> Iterator[Observed]:
    """The events at the end of a log, the last one first; with *kinds*, as they stand in a line, only these.

    Nearly all lines of an agent are parts of what it says, and need not be parsed to be passed over.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    for line in reversed(lines):
        if kinds and not any(kind in line for kind in kinds):
            continue
        try:
            yield read_told(line, session="")
        except ValueError:  # blank, torn, or where the reading began
            continue
