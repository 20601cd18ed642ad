"""Process identity: a process told from every other with its number, and waiting for its end."""

import os
from pathlib import Path

import attrs
import trio

_STATE, _BEGAN = 0, 19
"""In /proc/PID/stat, counted from the state, which stands behind the name."""
_ENDED = b"ZX"


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """One process of one machine."""

    pid: int
    began: int
    """Clock ticks from the start of the machine to that of the process."""
    place: str
    """Which start of which machine, and which space of process numbers on it."""

    @classmethod
    def this(cls) -> "ProcessIdentity":
        """The one that asks."""
        began = _began(os.getpid())
        assert began is not None, "a process that asks is alive"
        return cls(pid=os.getpid(), began=began, place=_place())

    @property
    def is_here(self) -> bool:
        """Whether its number means something where we are: if not, nobody can say whether it is alive."""
        return self.place == _place()

    @property
    def is_alive(self) -> bool:
        """Whether this very process has not ended; asked of one that is here."""
        return _began(self.pid) == self.began


def began_before(pid: int, at: float) -> bool:
    """Whether there is a process *pid* that was begun before the time *at*, by the clock of the machine."""
    ticks = _began(pid)
    return ticks is not None and _boot_time() + ticks / os.sysconf("SC_CLK_TCK") <= at


def _began(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in _ENDED else int(fields[_BEGAN])


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _boot_time() -> float:
    lines = Path("/proc/stat").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("btime ")).split()[1])


async def wait_ended(pid: int) -> None:
    """Return when the process *pid*, a child not yet reaped, has ended; reaping it is still the caller's."""
    descriptor = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
