"""Processes of this machine: identity, /proc/PID/stat and /proc/PID/environ, and signals to exactly one process.

Two environment variables say which session and which agent a process belongs to.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

SESSION_VARIABLE = "COTERIE_SESSION"
"""The session's id, in the environment of every process that belongs to it."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Which start of which agent a process belongs to, as `agent_tag` has it."""

_GONE = (FileNotFoundError, ProcessLookupError)
"""Raised for a file of a process that has ended, before it is opened and after."""


def agent_tag(name: str, incarnation: int) -> str:
    """The value of `COTERIE_AGENT`."""
    return f"{name}#{incarnation}"


@attrs.frozen(kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat that somebody needs."""

    has_ended: bool
    """Whether the process has ended and was not reaped."""
    parent: int
    group: int
    session: int
    """The session in the sense of terminals."""
    began: int
    """Clock ticks from the start of the machine to that of the process."""
    arguments: tuple[int, int]
    """The addresses at which the command line begins and ends; equal where the kernel does not tell."""
    variables_end: int
    """The address at which the environment ends; 0 where the kernel does not tell, and during `execve`."""


def read_stat(pid: int) -> ProcessStat | None:
    """Read what the kernel tells of the process *pid*; None if there is none."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except _GONE:
        return None
    # The name, which stands in brackets before these, may hold anything, even a bracket.
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
    """When the process *pid* began, in clock ticks since the machine was started; None if it has ended."""
    stat = read_stat(pid)
    return None if stat is None or stat.has_ended else stat.began


def process_start_timestamp(pid: int) -> float | None:
    """When the process *pid* began, in seconds since 1970, to the second; None if it has ended."""
    if (began := process_start_time(pid)) is None:
        return None
    lines = Path("/proc/stat").read_text().splitlines()
    booted = float(next(line for line in lines if line.startswith("btime ")).split()[1])
    return booted + began / os.sysconf("SC_CLK_TCK")


def read_boot_id() -> str:
    """The id of this start of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@attrs.frozen
class ProcessHandle:
    """A pidfd: as long as it is open, a signal reaches this process or none."""

    pidfd: int

    def send_signal(self, number: int) -> bool:
        """Send a signal; whether the process was there to get it. Raises `PermissionError`."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    async def wait_ended(self) -> None:
        """Return when the process has ended; reaping it is its parent's."""
        import trio  # noqa: PLC0415 - most that need an identity wait for nothing, and some must load fast

        await trio.lowlevel.wait_readable(self.pidfd)


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """One process, as opposed to an earlier or later one with the same number."""

    pid: int
    began: int
    """See `ProcessStat`."""

    @classmethod
    def this(cls) -> "ProcessIdentity":
        """The calling process."""
        found = ProcessIdentity.find(os.getpid())
        assert found is not None, "a process that asks is alive"
        return found

    @classmethod
    def find(cls, pid: int) -> "ProcessIdentity | None":
        """Return the process that has the number *pid* now; None if it has ended."""
        began = process_start_time(pid)
        return None if began is None else ProcessIdentity(pid=pid, began=began)

    def is_alive(self) -> bool:
        """Whether this very process has not ended."""
        return process_start_time(self.pid) == self.began

    @contextmanager
    def open_handle(self) -> Iterator[ProcessHandle | None]:
        """Hold the process while the block runs; None if it has ended."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            # Once it is held its number is its own, so the process that is checked now gets the signals.
            yield ProcessHandle(pidfd) if self.is_alive() else None
        finally:
            os.close(pidfd)

    def send_signal(self, number: int) -> bool:
        """Send a signal to this very process; whether it was there to get it. Raises `PermissionError`."""
        with self.open_handle() as handle:
            return handle is not None and handle.send_signal(number)


async def wait_ended(pid: int) -> None:
    """Return when the process *pid*, a child not yet reaped, has ended; reaping it is still the caller's."""
    pidfd = os.pidfd_open(pid)
    try:
        await ProcessHandle(pidfd).wait_ended()
    finally:
        os.close(pidfd)


def list_pids() -> list[int]:
    """The numbers of all processes that are visible here."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def list_child_pids() -> list[int]:
    """The children of the main thread of this process, those that were not reaped included."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def ancestors(pid: int) -> Iterator[int]:
    """Yield *pid*, its parent, and so on up to the first process. Raises `ProcessLookupError` after one that is gone.

    The first process is not looked at: it may be hidden.
    """
    while pid > 0:
        yield pid
        if pid == 1:
            return
        if (stat := read_stat(pid)) is None:
            raise ProcessLookupError(f"process {pid} has ended")
        pid = stat.parent


def read_environment(pid: int) -> dict[str, str] | None:
    """The variables that *pid* was started with; None while it is about to execute its program, and shows none.

    Nothing of one that has ended, or is another user's by now.
    """
    path = Path(f"/proc/{pid}/environ")
    with contextlib.suppress(*_GONE, PermissionError):
        content = path.read_bytes()
        if not content and _is_in_exec(pid):
            return None
        # If there was nothing, it may have been executed in between.
        lines = os.fsdecode(content or path.read_bytes()).split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)
    return {}


def _is_in_exec(pid: int) -> bool:
    """Whether the kernel has taken the old program from *pid*, and not put the new one's variables in place."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended and stat.variables_end == 0


ROOT_MODULE = b"coterie.orchestrator.root"
"""Part of the command line of a root, which adopts the orphans of its agents."""


def is_called_by_agent() -> bool:
    """Return True if this process was started, at whatever distance, by an agent of a session.

    A process can remove a variable from its own environment, but not from those of its ancestors.
    """
    try:
        return any(_is_agent_or_root(pid) for pid in ancestors(os.getpid()) if pid > 1)
    except (FileNotFoundError, ProcessLookupError):
        return True  # an ancestor has ended, so it is unknown whose it was


def _is_agent_or_root(pid: int) -> bool:
    return AGENT_VARIABLE in (read_environment(pid) or {}) or ROOT_MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()
