"""Cleanup daemon of a session: kills what is left if the root is killed, then runs the repair.

`python -I -S cleanup_daemon.py VARIABLE=SESSION RECORD`, with a pipe as standard input of which the root alone has the
other end, and a pidfd of the root as descriptor 3. A farewell in the pipe says that all have ended. An end without one
says that the root was killed: once it is gone every process of the session is killed, and the janitor becomes the
program that mends the session's records and tells in its log what was done (`orchestrator.doctor.crash_cleanup`).

A process belongs to the session that its environment names; one that names none, as under `env -i`, to that of its
parent or of the leader of its (terminal) session. So what is missed is only who has cleaned its environment, left its
session, and lost its parent. Nothing but the standard library is imported: it is there all the time.
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

TITLE = "coterie janitor"
RELEASE = b"."
ROOT_DESCRIPTOR = 3
"""The descriptor by which the root is held. Its number may be another's once it is gone, this is not."""
KILL_TIMEOUT = 5.0
"""Seconds in which everything is gone, unless the kernel holds it."""
ROUND_SECONDS = 0.2
"""Seconds in which killed processes have ended, most of the time; then they are looked for again."""
KILL_BATCH = 500
"""Processes that are held at a time; each takes a descriptor."""

IGNORED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
"""Whoever sends these to all processes of a session means the root, and this one ends after it.

Blocked from its first moment: to a janitor that is stopped when its root dies the kernel sends SIGHUP, and SIGCONT.
"""
_SET_DEATH_SIGNAL = 1
_STATE, _PARENT, _LEADER, _BEGAN = 0, 1, 3, 19
"""In /proc/PID/stat, counted from the state, which stands behind the name."""
_ENDED = b"ZX"


class KilledProcesses(NamedTuple):
    """What was done about the processes of a session."""

    killed: int = 0
    left: tuple[int, ...] = ()
    """Those that were still there when time was up."""
    is_taken_over: bool = False
    """A new root has come meanwhile, and whatever there is now may be its."""
    trouble: str = ""
    """What nobody had planned, in the way of it."""


class FoundProcess(NamedTuple):
    """One process; a later one with its number began at another time."""

    pid: int
    began: int
    parent: int
    leader: int
    """Of its session, in the sense of terminals."""
    named: bytes | None
    """The session, in our sense, that its environment names."""


class ProcessScan:
    """Looks for the processes of a session, and remembers them: those that dead ones have left are known by these."""

    def __init__(self, variable: bytes, session: bytes) -> None:
        self._variable = variable
        self._session = session
        self._known: dict[int, int] = {}
        """By number: when it began."""

    def find(self) -> list[FoundProcess]:
        """All that are alive, except this process."""
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
    """Wait for the end of the root, whose *record* is there by now, and clean up if it was killed."""
    _set_signal_action(signal.SIG_IGN)
    # Who stops this process in one moment with the root's death would stop it for ever: the kernel continues only those
    # that stand still by then. A signal of ours at that death also takes back a stop that is under way.
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGCONT, 0, 0, 0)
    os.closerange(ROOT_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))
    Path("/proc/self/comm").write_text(TITLE)
    ours = _read(record)
    if os.read(0, len(RELEASE)) == RELEASE:
        return 0
    _wait_for_end_of_root()
    # From here on others may do the same work, and `stop --now` ends this process as any other.
    _set_signal_action(signal.SIG_DFL)
    variable, _, session = mark.partition("=")
    try:
        ended = kill_all(ProcessScan(variable.encode(), session.encode()), record, ours)
    except Exception as exc:  # noqa: BLE001 - the outermost frame; what is on record is mended and told all the same
        traceback.print_exc()
        ended = KilledProcesses(trouble=f"{type(exc).__name__}: {exc}")
    _exec_repair(variable, session, ended)
    return 0


def _set_signal_action(action: signal.Handlers) -> None:
    for number in IGNORED_SIGNALS:
        signal.signal(number, action)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _wait_for_end_of_root() -> None:
    """Whoever dies closes its files first, and may take its time then: until it is gone it is on record as alive."""
    held = select.poll()
    held.register(ROOT_DESCRIPTOR, select.POLLIN)
    held.poll()


def kill_all(search: ProcessScan, record: Path, ours: bytes) -> KilledProcesses:
    """Kill whatever the search finds until it finds nothing, or time is up, or a new root has come meanwhile."""
    until = time.monotonic() + KILL_TIMEOUT
    found: list[FoundProcess] = []
    killed: set[tuple[int, int]] = set()
    misses = 0
    while misses < 2 and time.monotonic() < until:  # once more: a child may have come where nobody looked any more
        found = search.find()
        # After the search: a root writes its record before it starts its first process, so none of these is its.
        if _read(record) not in (ours, b""):
            return KilledProcesses(killed=len(killed), is_taken_over=True)
        _kill(found[:KILL_BATCH])
        killed.update((process.pid, process.began) for process in found[:KILL_BATCH])
        misses = 0 if found else misses + 1
    left = tuple(process.pid for process in found if _began(process.pid) == process.began)
    return KilledProcesses(killed=len(killed), left=left)


def _kill(processes: Sequence[FoundProcess]) -> None:
    """Kill them and wait for their end, at most one round."""
    with contextlib.ExitStack() as stack:
        held = select.poll()
        count = 0
        for process in processes:
            # One that has ended is gone; one that runs under another user's name cannot be ended.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                descriptor = os.pidfd_open(process.pid)
                stack.callback(os.close, descriptor)
                # Once it is held its number is its own, so what is looked at now is what the signal goes to.
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
    """Every process of this user that has not ended."""
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
    """What /proc/PID/stat says; nothing of a process that has ended. Raises `ProcessLookupError` and its like."""
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
    except PermissionError:  # a program that runs under another user's name
        return None
    return next((line[len(variable) + 1 :] for line in lines if line.startswith(variable + b"=")), None)


def _read(record: Path) -> bytes:
    """The record of the root; empty where there is none."""
    try:
        return record.read_bytes()
    except FileNotFoundError:
        return b""


def _exec_repair(variable: str, session: str, ended: KilledProcesses) -> None:
    """Become who does it. That is no process of the session: who looks for strays meanwhile does not find it."""
    environment = {name: value for name, value in os.environ.items() if name != variable}
    command = [sys.executable, "-P", "-m", "coterie.orchestrator.doctor.crash_cleanup", session, json.dumps(ended)]
    os.execve(sys.executable, command, environment)  # noqa: S606 - our own program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
