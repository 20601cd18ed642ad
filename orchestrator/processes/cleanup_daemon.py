"""Cleanup daemon: if the root process of a session is killed, it kills the session's other processes and runs a repair.

`python -I -S cleanup_daemon.py VARIABLE=SESSION RECORD`; the file RECORD names the root. Standard input is a pipe whose
other end is open only in the root. Descriptor 3 is a pidfd of the root. A release byte in the pipe means that all
processes have ended. End of file without that byte means that the root was killed. Then the daemon waits for its end,
kills all processes of the session, and executes the repair of its files (`orchestrator.doctor.crash_cleanup`).

A process belongs to the session that is named in its environment. A process without that variable, for example under
`env -i`, belongs to the session of its parent or of its terminal session leader. So a process is missed only if it has
cleared its environment, left its terminal session and lost its parent. The daemon imports only the standard library,
because it runs during the whole session and must work when other code is broken.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

TITLE = "coterie cleanup"
RELEASE = b"."
ROOT_DESCRIPTOR = 3
"""Descriptor number in the daemon of a pidfd of the root. Unlike a pid, a pidfd never refers to another process."""
KILL_TIMEOUT = 5.0
"""Maximum seconds for killing all processes; a process in an uninterruptible system call can live longer."""
ROUND_SECONDS = 0.2
"""Maximum seconds to wait for killed processes to end before the next scan."""
KILL_BATCH = 500
"""Maximum number of processes killed after one scan, because each kill needs an open descriptor."""

IGNORED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Signals that the daemon ignores, because it must outlive the root if all processes of a session receive them.

They are blocked from the start, because the kernel sends SIGHUP and SIGCONT to a stopped daemon when its root dies.
"""
_SET_DEATH_SIGNAL = 1
_STATE, _PARENT, _LEADER, _BEGAN = 0, 1, 3, 19
"""Positions of state, parent, session leader and start time in /proc/PID/stat, counted after the process name."""
_ENDED = b"ZX"


class KilledProcesses(NamedTuple):
    """Result of killing the processes of a session whose root was killed, for the repair program."""

    killed: int = 0
    left: tuple[int, ...] = ()
    """Pids of processes that were still alive after the timeout."""
    is_taken_over: bool = False
    """True if the killing stopped because a new root of the session has started; `left` is then empty."""
    trouble: str = ""
    """Unexpected exception during the killing, as text; empty if there was none."""


class FoundProcess(NamedTuple):
    """A process that a scan of /proc has found, identified by its pid and start time."""

    pid: int
    began: int
    parent: int
    leader: int
    """Pid of the leader of the process's terminal session."""
    named: bytes | None
    """Coterie session id in the environment of the process; None if there is none or it cannot be read."""


class ProcessScan:
    """Repeated scan for the processes of a session. Found processes are remembered, to recognise their orphans."""

    def __init__(self, variable: bytes, session: bytes) -> None:
        self._variable = variable
        self._session = session
        self._known: dict[int, int] = {}
        """Start times of the session's processes that were found so far, by pid."""

    def find(self) -> list[FoundProcess]:
        """Return all living processes of the session, except this process."""
        processes = [process for process in _processes(self._variable) if process.pid != os.getpid()]
        now = {process.pid: process.began for process in processes}
        self._known = {pid: began for pid, began in self._known.items() if now.get(pid, began) == began}
        while new := [process for process in processes if process.pid not in self._known and self._belongs(process)]:
            self._known.update((process.pid, process.began) for process in new)
        return [process for process in processes if process.pid in self._known]

    def _belongs(self, process: FoundProcess) -> bool:
        if process.named is not None:
            return process.named == self._session
        return process.parent in self._known or process.leader in self._known


def main(mark: str, record: Path) -> int:
    """Wait until the root ends or releases this daemon. If the root was killed, kill its processes and run the repair.

    *mark* is `VARIABLE=SESSION`, an environment variable of these processes. *record* is the file that names the root.
    """
    _set_signal_action(signal.SIG_IGN)
    # A stop signal that arrives together with the root's death would stop this process forever, because the kernel
    # continues only processes that are stopped at that time. SIGCONT as death signal also cancels a pending stop.
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGCONT, 0, 0, 0)
    os.closerange(ROOT_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
    Path("/proc/self/comm").write_text(TITLE)
    ours = _read(record)
    if os.read(0, len(RELEASE)) == RELEASE:
        return 0
    # A dying process closes its files first, and counts as alive for some time.
    held = select.poll()
    held.register(ROOT_DESCRIPTOR, select.POLLIN)
    held.poll()
    # From here on other programs may do the same cleanup, and `stop --now` may end this process.
    _set_signal_action(signal.SIG_DFL)
    variable, _, session = mark.partition("=")
    try:
        ended = kill_all(ProcessScan(variable.encode(), session.encode()), record, ours)
    except Exception as exc:  # noqa: BLE001 - outermost frame; the records are repaired and reported in any case
        traceback.print_exc()
        ended = KilledProcesses(trouble=f"{type(exc).__name__}: {exc}")
    _exec_repair(variable, session, ended)
    return 0


def _set_signal_action(action: signal.Handlers) -> None:
    for number in IGNORED_SIGNALS:
        signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def kill_all(search: ProcessScan, record: Path, ours: bytes) -> KilledProcesses:
    """Kill the processes that *search* finds, until two scans find none, the timeout expires, or a new root starts.

    A new root has replaced the content of *record*, the file that names the root, which was *ours* before.
    """
    until = time.monotonic() + KILL_TIMEOUT
    found: list[FoundProcess] = []
    killed: set[tuple[int, int]] = set()
    misses = 0
    while misses < 2 and time.monotonic() < until:  # twice, because a fork may have escaped the first scan
        found = search.find()
        # Checked after the scan: a root writes its record before it starts a process, so these are not of a new root.
        if _read(record) not in (ours, b""):
            return KilledProcesses(killed=len(killed), is_taken_over=True)
        _kill(found[:KILL_BATCH])
        killed.update((process.pid, process.began) for process in found[:KILL_BATCH])
        misses = 0 if found else misses + 1
    left = tuple(process.pid for process in found if _began(process.pid) == process.began)
    return KilledProcesses(killed=len(killed), left=left)


def _kill(processes: Sequence[FoundProcess]) -> None:
    """Kill *processes*, and wait at most `ROUND_SECONDS` for their end."""
    with contextlib.ExitStack() as stack:
        held = select.poll()
        count = 0
        for process in processes:
            # Skip processes that have ended and processes of other users.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                descriptor = os.pidfd_open(process.pid)
                stack.callback(os.close, descriptor)
                # The pidfd is opened before the start time is compared, so the signal goes to the compared process.
                if _began(process.pid) == process.began:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    held.register(descriptor, select.POLLIN)
                    count += 1
        until = time.monotonic() + ROUND_SECONDS
        while count and (left := until - time.monotonic()) > 0:
            for descriptor, _ in held.poll(left * 1000):
                held.unregister(descriptor)
                count -= 1


def _processes(variable: bytes) -> Iterator[FoundProcess]:
    """Yield every living process of this user, each with the value of environment variable *variable*."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if entry.stat().st_uid == os.getuid() and (fields := _status(int(entry.name))):
                    yield FoundProcess(
                        pid=int(entry.name),
                        began=int(fields[_BEGAN]),
                        parent=int(fields[_PARENT]),
                        leader=int(fields[_LEADER]),
                        named=_named(Path(entry.path, "environ"), variable),
                    )


def _status(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; empty for a zombie. Raises `OSError` if it is reaped."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return [] if fields[_STATE] in _ENDED else fields


def _began(pid: int) -> int | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if fields := _status(pid):
            return int(fields[_BEGAN])
    return None


def _named(path: Path, variable: bytes) -> bytes | None:
    try:
        lines = path.read_bytes().split(b"\0")
    except PermissionError:  # a setuid program of another user
        return None
    return next((line[len(variable) + 1 :] for line in lines if line.startswith(variable + b"=")), None)


def _read(record: Path) -> bytes:
    """Return the content of the file that names the root process; empty if the file does not exist."""
    try:
        return record.read_bytes()
    except FileNotFoundError:
        return b""


def _exec_repair(variable: str, session: str, ended: KilledProcesses) -> None:
    """Become the repair program by exec, without the session variable, so no search for stray processes finds it."""
    environment = {name: value for name, value in os.environ.items() if name != variable}
    command = [sys.executable, "-P", "-m", "coterie.orchestrator.doctor.crash_cleanup", session, json.dumps(ended)]
    os.execve(sys.executable, command, environment)  # noqa: S606 - our own program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
