"""Processes of a scenario run: search, signals, waiting for their exit, killing."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.orchestrator.doctor.checks import check_machine, check_session
from coterie.orchestrator.session.root_lock import process_start_time
from coterie.paths import HOME_VARIABLE
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.session_directory import SessionDirectory

_PARENT = 1
"""In /proc/PID/stat, counted from the state, which stands behind the name."""


@attrs.frozen(kw_only=True)
class ScenarioProcess:
    """One process that has not ended; a later one with its number began at another time."""

    pid: int
    began: int
    parent: int
    name: str


def find_processes(home: Path) -> list[ScenarioProcess]:
    """All that were started below this `COTERIE_HOME`, except this process. Blocks."""
    return list(_processes(os.fsencode(f"{HOME_VARIABLE}={home}")))


def send_signal(process: ScenarioProcess, number: signal.Signals) -> bool:
    """Send a signal to this very process; whether it was there to get it."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Once it is held its number is its own, so what is looked at now is what the signal goes to.
        if process_start_time(process.pid) != process.began:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _processes(mark: bytes) -> Iterator[ScenarioProcess]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            began = process_start_time(int(entry.name))
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            name = (entry / "comm").read_text().rstrip("\n")
            if began is not None:
                yield ScenarioProcess(pid=int(entry.name), began=began, parent=int(fields[_PARENT]), name=name)


EXIT_TIMEOUT = 15.0
"""Seconds in which all that a crash has left is cleaned up by who answers for that."""
POLL_SECONDS = 0.05
ROUNDS = 50


async def wait_for_exit(
    stage: ScenarioEnvironment, session: SessionDirectory | None, patience: float = EXIT_TIMEOUT
) -> tuple[str, ...]:
    """Wait until no process of the play is left and the doctor finds nothing; what there is else."""
    found: tuple[str, ...] = ("not looked",)
    with trio.move_on_after(patience):
        while found := await trio.to_thread.run_sync(_left, stage, session):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(POLL_SECONDS)
    return found


async def kill_all(stage: ScenarioEnvironment) -> None:
    """Kill all processes of the play, and those that they start meanwhile; returns once they are gone."""
    for _ in range(ROUNDS):
        if not (processes := await trio.to_thread.run_sync(find_processes, stage.home)):
            return
        for process in processes:
            send_signal(process, signal.SIGKILL)
        await trio.sleep(POLL_SECONDS)


def _left(stage: ScenarioEnvironment, session: SessionDirectory | None) -> tuple[str, ...]:
    processes = tuple(f"process {each.pid}, {each.name}" for each in find_processes(stage.home))
    if processes or session is None:
        return processes
    found = [*check_machine(session), *check_session(session.id, Clock.from_environment())]
    return tuple(f"{finding.where}: {finding.what}" for finding in found if not finding.is_harmless)
