"""What Linux offers a process about its parent, its children and its name, and Python does not."""

import ctypes
import os
import signal
from pathlib import Path

_SET_DEATH_SIGNAL = 1
_SET_NAME = 15
_SET_SUBREAPER = 36
_GET_SUBREAPER = 37

_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""In /proc/self/stat, counted from the state, which stands behind the name."""

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans(*, yes: bool) -> bool:
    """Say whether this process becomes the parent of descendants that lose theirs; returns whether it was so before."""
    before = ctypes.c_int()
    _prctl(_GET_SUBREAPER, ctypes.addressof(before))
    _prctl(_SET_SUBREAPER, int(yes))
    return bool(before.value)


def die_with_parent(parent: int) -> bool:
    """Be killed when the process *parent* ends; False if it is not, or no longer, the parent.

    The signal follows the thread that is the parent, so whoever starts processes does so on its main thread.
    """
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent


def set_title(title: str) -> None:
    """Show *title* in `ps` and `top`; it is cut to the room of the command line it is written over."""
    encoded = title.encode()
    _prctl(_SET_NAME, encoded)
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    if room := end - start:  # none where the kernel does not tell
        ctypes.memmove(start, encoded[: room - 1].ljust(room, b"\0"), room)


def _prctl(option: int, argument: int | bytes) -> None:
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
