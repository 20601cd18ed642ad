"""Processes of this machine: identity, data of /proc/PID/stat and /proc/PID/environ, and signals to one process.

Two environment variables hold the session and the agent that a process belongs to.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

SESSION_VARIABLE = "COTERIE_SESSION"
"""Environment variable with the session id; set in the processes that the root (main process of the session) starts."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Environment variable with the agent of a process and the number of the agent's start, as `agent_tag` returns them."""

_GONE = (FileNotFoundError, ProcessLookupError)
"""Errors if a process has ended: of opening a file in /proc/PID, and of reading from the open file."""


def agent_tag(name: str, incarnation: int) -> str:
    """Return `name#number`, the value of `COTERIE_AGENT` for the start *incarnation* of the agent *name*."""
    return f"{name}#{incarnation}"


@attrs.frozen(kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat that Coterie uses."""

    has_ended: bool
    """True if the process has ended and is not reaped yet."""
    parent: int
    group: int
    session: int
    """Id of the terminal session; unrelated to sessions of Coterie."""
    began: int
    """Start time of the process, in clock ticks since boot."""
    arguments: tuple[int, int]
    """Start and end address of the command line in the process's memory; equal if the kernel hides them."""
    variables_end: int
    """End address of the environment in the process's memory; 0 during `execve`, or if the kernel hides it."""


def read_stat(pid: int) -> ProcessStat | None:
    """Read /proc/PID/stat of the process *pid*; None if there is no such process."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except _GONE:
        return None
    # Search from the right: the process name in brackets may itself contain a bracket.
    state, *fields = content.rpartition(b")")[2].split()
    return ProcessStat(
        has_ended=state in (b"Z", b"X"),
        parent=int(fields[0]),
        group=int(fields[1]),
        session=int(fields[2]),
        began=int(fields[18]),
        arguments=(int(fields[44]), int(fields[45])),
        variables_end=int(fields[47]),
    )


def process_start_time(pid: int) -> int | None:
    """Return the start time of the process *pid* in clock ticks since boot; None if it has ended."""
    stat = read_stat(pid)
    return None if stat is None or stat.has_ended else stat.began


def process_start_timestamp(pid: int) -> float | None:
    """Return the start time of the process *pid* in seconds since 1970, to the second; None if it has ended."""
    if (began := process_start_time(pid)) is None:
        return None
    lines = Path("/proc/stat").read_text().splitlines()
    booted = float(next(line for line in lines if line.startswith("btime ")).split()[1])
    return booted + began / os.sysconf("SC_CLK_TCK")


def read_boot_id() -> str:
    """Return the boot id of the kernel, which changes at every boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@attrs.frozen
class ProcessHandle:
    """An open pidfd of a process: a signal sent through it never reaches another process, even if the pid is reused."""

    pidfd: int

    def send_signal(self, number: int) -> bool:
        """Send the signal *number*; return False if the process has ended. Raises `PermissionError` if not allowed."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    async def wait_ended(self) -> None:
        """Wait until the process has ended; its parent still has to reap it."""
        import trio  # noqa: PLC0415 - most importers of this module wait for nothing, and some must start fast

        await trio.lowlevel.wait_readable(self.pidfd)


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """Identity of one process: pid and start time, so that a reused pid is detected."""

    pid: int
    began: int
    """Start time in clock ticks since boot."""

    @classmethod
    def this(cls) -> "ProcessIdentity":
        """Return the identity of the calling process."""
        found = ProcessIdentity.find(os.getpid())
        assert found is not None, "the calling process is alive"
        return found

    @classmethod
    def find(cls, pid: int) -> "ProcessIdentity | None":
        """Return the identity of the process that has *pid* now; None if it has ended."""
        began = process_start_time(pid)
        return None if began is None else ProcessIdentity(pid=pid, began=began)

    def is_alive(self) -> bool:
        """Return True if this process still runs, not another process that got the same pid later."""
        return process_start_time(self.pid) == self.began

    @contextmanager
    def open_handle(self) -> Iterator[ProcessHandle | None]:
        """Provide a handle for signals to the process, open until the block ends; None if the process has ended."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # The identity is checked after the pidfd is open, so the checked process is the one that gets signals.
            yield ProcessHandle(pidfd) if self.is_alive() else None
        finally:
            os.close(pidfd)

    def send_signal(self, number: int) -> bool:
        """Send the signal *number* to exactly this process; return False if it has ended. Raises `PermissionError`."""
        with self.open_handle() as handle:
            return handle is not None and handle.send_signal(number)


async def wait_ended(pid: int) -> None:
    """Wait until the child process *pid* of this process has ended; the caller still has to reap it."""
    pidfd = os.pidfd_open(pid)
    try:
        await ProcessHandle(pidfd).wait_ended()
    finally:
        os.close(pidfd)


def list_pids() -> list[int]:
    """Return the pids of all visible processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def list_child_pids() -> list[int]:
    """Return the pids of the children of the main thread: started or adopted ones, also if ended but not reaped."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def ancestors(pid: int) -> Iterator[int]:
    """Yield *pid*, the pid of its parent, and so on up to 1. Raises `ProcessLookupError` if such a process has ended.

    The state of process 1 is not read, because it may be hidden.
    """
    while pid > 0:
        yield pid
        if pid == 1:
            return
        if (stat := read_stat(pid)) is None:
            raise ProcessLookupError(f"process {pid} has ended, so its parent is unknown")
        pid = stat.parent


def read_environment(pid: int) -> dict[str, str] | None:
    """Return the environment variables with which *pid* was started; empty if it has ended or is of another user.

    None while the process is in `execve`, because the kernel then shows no environment.
    """
    path = Path(f"/proc/{pid}/environ")
    with contextlib.suppress(*_GONE, PermissionError):
        content = path.read_bytes()
        if not content and _is_in_exec(pid):
            return None
        # Read an empty environment again, because `execve` may have completed since.
        lines = os.fsdecode(content or path.read_bytes()).split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)
    return {}


def _is_in_exec(pid: int) -> bool:
    """Return True if *pid* is in `execve`: its old program has been removed, and the new environment is not set yet."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended and stat.variables_end == 0


ROOT_MODULE = b"coterie.orchestrator.root"
"""Part of the command line of every root, the main process of a session, which adopts orphaned agent processes."""


def is_called_by_agent() -> bool:
    """Return True if this process is or descends from an agent or a root, or if that is unknown.

    Commands that only the user may run check this. The environment of each ancestor is read, because an agent can
    remove a variable from the environment of a command, but not from that of a running ancestor.
    """
    try:
        return any(_is_agent_or_root(pid) for pid in ancestors(os.getpid()) if pid > 1)
    except (FileNotFoundError, ProcessLookupError):
        return True  # an ancestor has ended, so assume that it was an agent


def _is_agent_or_root(pid: int) -> bool:
    return AGENT_VARIABLE in (read_environment(pid) or {}) or ROOT_MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()
