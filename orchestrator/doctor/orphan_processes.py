"""Check for processes whose session is not running any more.

A process is known by the id of its session, which every process of a session hands down in its environment. What stands
on its command line proves nothing: a title names no session.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.session.root_lock import find_living_roots
from coterie.paths import HOME_VARIABLE, home_directory
from coterie.process_identity import (
    AGENT_VARIABLE,
    SESSION_VARIABLE,
    ProcessIdentity,
    ancestors,
    list_pids,
    process_start_time,
    read_environment,
)

GRACE = 5.0
"""Seconds in which a process that is told to end may do so by itself, and in which a killed one is gone."""
ROUNDS = 10
"""How often what ended strays have started is looked for."""
SHOWN = 200
"""Characters of a command line that are told."""


@attrs.frozen(kw_only=True)
class OrphanProcess(ProcessIdentity):
    """A process that nobody owns."""

    session: str
    agent: str
    """Which start of which agent it belongs to, if it says so."""
    title: str


def find_orphan_processes(session: str | None = None) -> list[OrphanProcess]:
    """All strays of this user, or those of one session.

    The processes of sessions below another `COTERIE_HOME` are left alone, and so are this process, its parents, and
    the roots of sessions that run, whoever has started them.
    """
    # First the processes, then the roots: a root that runs had its record before its first process was started.
    belonging = [stray for stray in _session_processes() if session in (None, stray.session)]
    roots = find_living_roots()
    spared = {root.pid for root in roots.values()}
    with contextlib.suppress(ProcessLookupError):  # a parent has ended, and its children are another's
        spared.update(ancestors(os.getpid()))
    strays = [stray for stray in belonging if stray.session not in roots and stray.pid not in spared]
    return [stray for stray in strays if stray.is_alive()]


def orphan_findings(session: str | None = None) -> list[DoctorFinding]:
    """What `find_orphan_processes` finds."""
    return [
        DoctorFinding(
            kind="stray_process",
            where=f"process {stray.pid}",
            what=f"{stray.title!r} is left of {_owner(stray)}, whose root is gone",
            session=stray.session,
            remedy=RepairAction(description="end it: ask, wait, kill", apply=partial(kill_orphan_process, stray)),
        )
        for stray in find_orphan_processes(session)
    ]


async def kill_orphan_process(stray: OrphanProcess, grace: float = GRACE) -> None:
    """Ask the process to end, wait, and kill it; returns once it has ended. Raises `RepairFailed` if it does not.

    Cancellation leaves it as it is by then.
    """
    with stray.open_handle() as handle:
        if handle is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            handle.send_signal(number)
            with trio.move_on_after(grace):
                await handle.wait_ended()
                return
    raise RepairFailed(f"process {stray.pid} has not ended {grace:g} seconds after it was killed")


async def kill_orphan_processes(session: str | None = None) -> None:
    """Kill everything `find_orphan_processes` finds, and its new children. Raises `RepairFailed` if some are left."""
    for _ in range(ROUNDS):
        strays = find_orphan_processes(session)
        if not strays:
            return
        async with trio.open_nursery() as nursery:
            for stray in strays:
                nursery.start_soon(_try_to_end, stray)
    raise RepairFailed(f"processes {', '.join(str(stray.pid) for stray in strays)} could not be ended")


async def _try_to_end(stray: OrphanProcess) -> None:
    with contextlib.suppress(RepairFailed):  # then it is found again
        await kill_orphan_process(stray)


def _owner(stray: OrphanProcess) -> str:
    return f"{stray.agent} in session {stray.session}" if stray.agent else f"session {stray.session}"


def _session_processes() -> Iterator[OrphanProcess]:
    """Every process of this user that says it belongs to a session of this home."""
    for pid in list_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            entry = Path(f"/proc/{pid}")
            if entry.stat().st_uid == os.getuid() and (found := _read(pid, entry / "cmdline")) is not None:
                yield found


def _read(pid: int, command_line: Path) -> OrphanProcess | None:
    began = process_start_time(pid)
    handed_down = read_environment(pid) or {}
    if began is None or SESSION_VARIABLE not in handed_down or not _is_of_this_home(handed_down):
        return None
    return OrphanProcess(
        pid=pid,
        began=began,
        session=handed_down[SESSION_VARIABLE],
        agent=handed_down.get(AGENT_VARIABLE, ""),
        title=os.fsdecode(command_line.read_bytes()).replace("\0", " ").strip()[:SHOWN],
    )


def _is_of_this_home(handed_down: dict[str, str]) -> bool:
    default = Path(handed_down.get("HOME", "~")) / ".coterie"
    theirs = handed_down.get(HOME_VARIABLE) or str(default)
    return Path(theirs).expanduser().resolve() == home_directory().resolve()
