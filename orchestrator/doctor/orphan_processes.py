"""Check for orphan processes: processes of a session whose root (supervisor process) has ended.

A process is recognised by the session id in its environment, which all children of a session inherit. The command line
is not used, because it contains no session id.
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
"""Seconds to wait for the end of an orphan process after SIGTERM, and again after SIGKILL."""
ROUNDS = 10
"""Maximum number of searches for processes that orphans start while they are being killed."""


@attrs.frozen(kw_only=True)
class OrphanProcess(ProcessIdentity):
    """Process of a session, such as an agent or a command of it; an orphan if the session's supervisor does not run."""

    session: str
    agent: str
    """Name and start number of the agent that the process belongs to, as from `agent_tag`; empty if unknown."""
    title: str
    """Command line of the process, at most 200 characters."""


def find_orphan_processes(session: str | None = None) -> list[OrphanProcess]:
    """Find the orphan processes of this user, or only those of *session*: their session has no running supervisor.

    Not found are processes of another `COTERIE_HOME`, this process and its ancestors.
    """
    # Processes are listed before roots: a running root has written its record before it starts its first process.
    processes = [process for process in _session_processes() if session in (None, process.session)]
    roots = find_living_roots()
    excluded = {root.pid for root in roots.values()}
    with contextlib.suppress(ProcessLookupError):  # an ancestor has ended, so the list ends there
        excluded.update(ancestors(os.getpid()))
    orphans = [process for process in processes if process.session not in roots and process.pid not in excluded]
    return [orphan for orphan in orphans if orphan.is_alive()]


def orphan_findings(session: str | None = None) -> list[DoctorFinding]:
    """Return a finding for each orphan process of this user, or only for those of *session*."""
    return [
        DoctorFinding(
            kind="stray_process",
            where=f"process {orphan.pid}",
            what=f"{orphan.title!r} of {orphan.agent or 'a process'} still runs after session {orphan.session} ended",
            session=orphan.session,
            remedy=RepairAction(description="kill the process", apply=partial(kill_orphan_process, orphan)),
        )
        for orphan in find_orphan_processes(session)
    ]


async def kill_orphan_process(orphan: OrphanProcess, grace: float = GRACE) -> None:
    """Send SIGTERM to *orphan* and, if it does not end within *grace* seconds, SIGKILL. Return once it has ended.

    After a cancellation it may be alive. Raises `RepairFailed` if it does not end after SIGKILL either.
    """
    with orphan.open_handle() as handle:
        if handle is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            handle.send_signal(number)
            with trio.move_on_after(grace):
                await handle.wait_ended()
                return
    raise RepairFailed(f"process {orphan.pid} has not ended {grace:g} seconds after SIGKILL; look at it with ps")


async def kill_orphan_processes(session: str | None = None) -> None:
    """Kill all orphan processes, or those of *session*, and those they start. Raises `RepairFailed` if some survive."""
    for _ in range(ROUNDS):
        orphans = find_orphan_processes(session)
        if not orphans:
            return
        async with trio.open_nursery() as nursery:
            for orphan in orphans:
                nursery.start_soon(_try_to_kill, orphan)
    raise RepairFailed(f"processes {', '.join(str(orphan.pid) for orphan in orphans)} still run after SIGKILL; see ps")


async def _try_to_kill(orphan: OrphanProcess) -> None:
    with contextlib.suppress(RepairFailed):  # the next round finds it again
        await kill_orphan_process(orphan)


def _session_processes() -> Iterator[OrphanProcess]:
    """Yield every process of this user that belongs to a session, running or not, of this `COTERIE_HOME`."""
    for pid in list_pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            entry = Path(f"/proc/{pid}")
            if entry.stat().st_uid != os.getuid():
                continue
            began, environment = process_start_time(pid), read_environment(pid) or {}
            if began is not None and SESSION_VARIABLE in environment and _uses_this_home(environment):
                yield OrphanProcess(
                    pid=pid,
                    began=began,
                    session=environment[SESSION_VARIABLE],
                    agent=environment.get(AGENT_VARIABLE, ""),
                    title=os.fsdecode((entry / "cmdline").read_bytes()).replace("\0", " ").strip()[:200],
                )


def _uses_this_home(environment: dict[str, str]) -> bool:
    default = Path(environment.get("HOME", "~")) / ".coterie"
    home = environment.get(HOME_VARIABLE) or str(default)
    return Path(home).expanduser().resolve() == home_directory().resolve()
