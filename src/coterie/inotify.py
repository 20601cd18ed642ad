"""Linux inotify calls, as far as Coterie uses them."""

import ctypes
import os
from pathlib import Path

MODIFY = 0x2
ATTRIB = 0x4
MOVED_TO = 0x80
CREATE = 0x100

_QUEUE_BYTES = 4_096


def open_inotify() -> int | None:
    """A descriptor that is readable when there is a notice; None where the kernel does not tell, or has no more."""
    try:
        descriptor: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):  # no C library to load, or one without inotify
        return None
    return descriptor if descriptor >= 0 else None


def add_watch(descriptor: int, directory: Path, events: int) -> bool:
    """Whether *directory* is watched from now on: not if it is not there, or over the limit of watches."""
    watch: int = _libc().inotify_add_watch(descriptor, os.fsencode(directory), events)
    return watch >= 0


def drain_events(descriptor: int) -> None:
    """Take what is to be read, without looking at it: whoever is woken looks at everything.

    If there is more than one read gives, the next wait ends at once, which does no harm.
    """
    try:
        os.read(descriptor, _QUEUE_BYTES)
    except BlockingIOError:
        return


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
