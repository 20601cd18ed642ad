"""Finds the processes of a scenario run, waits for their exit, and kills them."""

import os
import signal
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.orchestrator.doctor.checks import check_machine, check_session
from coterie.paths import HOME_VARIABLE
from coterie.process_identity import ProcessIdentity, list_pids, read_environment, read_stat
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.session_directory import SessionDirectory


@attrs.frozen(kw_only=True)
class ScenarioProcess(ProcessIdentity):
    """A process of a scenario run that has not ended; `name` is its title, as in `/proc/PID/comm`."""

    name: str


def find_processes(home: Path) -> list[ScenarioProcess]:
    """Return all running processes whose variable `COTERIE_HOME` is *home*, except this process. Blocks."""
    pids = (pid for pid in list_pids() if pid != os.getpid())
    started_here = (pid for pid in pids if (read_environment(pid) or {}).get(HOME_VARIABLE) == str(home))
    return [process for pid in started_here if (process := _read(pid)) is not None]


def _read(pid: int) -> ScenarioProcess | None:
    stat = read_stat(pid)
    if stat is None or stat.has_ended:
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ScenarioProcess(pid=pid, began=stat.began, name=name)


EXIT_TIMEOUT = 15.0
"""Maximum time in seconds that processes of a run get to end, and to repair files after a crash."""
POLL_SECONDS = 0.05
ROUNDS = 50


async def wait_for_exit(environment: ScenarioEnvironment, session: SessionDirectory | None) -> tuple[str, ...]:
    """Wait until no process of the run is left, and unless *session* is None, `coterie doctor` finds no problem in it.

    Return the processes and problems left after `EXIT_TIMEOUT` seconds; empty if none is left.
    """
    found: tuple[str, ...] = ("an unknown number of processes: they could not be listed in time",)
    with trio.move_on_after(EXIT_TIMEOUT):
        while found := await trio.to_thread.run_sync(_remaining, environment, session):  # noqa: ASYNC110 - no signal
            await trio.sleep(POLL_SECONDS)
    return found


async def kill_all(environment: ScenarioEnvironment) -> None:
    """Kill all processes of the run, also those started meanwhile; return if none is left, or after `ROUNDS` tries."""
    for _ in range(ROUNDS):
        if not (processes := await trio.to_thread.run_sync(find_processes, environment.home)):
            return
        for process in processes:
            process.send_signal(signal.SIGKILL)
        await trio.sleep(POLL_SECONDS)


def _remaining(environment: ScenarioEnvironment, session: SessionDirectory | None) -> tuple[str, ...]:
    processes = tuple(f"process {each.pid}, {each.name}" for each in find_processes(environment.home))
    if processes or session is None:
        return processes
    found = [*check_machine(session), *check_session(session.id, Clock.from_environment())]
    return tuple(f"{finding.where}: {finding.what}" for finding in found if not finding.is_harmless)
