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
from coterie.orchestrator.session.root_lock import find_living_roots, process_start_time
from coterie.paths import HOME_VARIABLE, home_directory
from coterie.process_markers import AGENT_VARIABLE, SESSION_VARIABLE

GRACE = 5.0
"""Seconds in which a process that is told to end may do so by itself, and in which a killed one is gone."""
ROUNDS = 10
"""How often what ended strays have started is looked for."""
SHOWN = 200
"""Characters of a command line that are told."""

_PARENT = 1
"""In /proc/PID/stat, counted from the state."""


@attrs.frozen(kw_only=True)
class OrphanProcess:
    """A process that nobody owns."""

    pid: int
    began: int
    """See `process_start_time`: a later process with the same number is another."""
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
    spared = {*_ancestors(), *(root.pid for root in roots.values())}
    strays = [stray for stray in belonging if stray.session not in roots and stray.pid not in spared]
    return [stray for stray in strays if process_start_time(stray.pid) == stray.began]


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
    try:
        descriptor = os.pidfd_open(stray.pid)
    except ProcessLookupError:
        return
    with contextlib.closing(os.fdopen(descriptor, "rb", buffering=0)):
        # Once it is held its number is its own, so what is looked at now is what the signals go to.
        if process_start_time(stray.pid) != stray.began:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            with trio.move_on_after(grace):
                await trio.lowlevel.wait_readable(descriptor)
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
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if entry.stat().st_uid == os.getuid() and (found := _read(entry)) is not None:
                    yield found


def _read(entry: Path) -> OrphanProcess | None:
    began = process_start_time(int(entry.name))
    lines = os.fsdecode((entry / "environ").read_bytes()).split("\0")
    handed_down = dict(line.split("=", 1) for line in lines if "=" in line)
    if began is None or SESSION_VARIABLE not in handed_down or not _is_of_this_home(handed_down):
        return None
    return OrphanProcess(
        pid=int(entry.name),
        began=began,
        session=handed_down[SESSION_VARIABLE],
        agent=handed_down.get(AGENT_VARIABLE, ""),
        title=os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ").strip()[:SHOWN],
    )


def _is_of_this_home(handed_down: dict[str, str]) -> bool:
    default = Path(handed_down.get("HOME", "~")) / ".coterie"
    theirs = handed_down.get(HOME_VARIABLE) or str(default)
    return Path(theirs).expanduser().resolve() == home_directory().resolve()


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[_PARENT])
        except FileNotFoundError:  # it ended, and its children are another's
            return
