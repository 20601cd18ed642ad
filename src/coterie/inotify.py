"""Calls of Linux inotify through the C library, to wait for file changes without polling."""

import ctypes
import os
from pathlib import Path

MODIFY = 0x2
ATTRIB = 0x4
MOVED_TO = 0x80
CREATE = 0x100

_QUEUE_BYTES = 4_096


def open_inotify() -> int | None:
    """Open an inotify descriptor, readable while events are pending; None if inotify is unavailable or exhausted."""
    try:
        descriptor: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):  # no C library to load, or one without inotify
        return None
    return descriptor if descriptor >= 0 else None


def add_watch(descriptor: int, directory: Path, events: int) -> bool:
    """Watch *directory* for *events*; return False if it does not exist or the kernel allows no more watches."""
    watch: int = _libc().inotify_add_watch(descriptor, os.fsencode(directory), events)
    return watch >= 0


def drain_events(descriptor: int) -> None:
    """Discard pending events, because the caller checks all directories after every wake-up.

    If more events are pending than one read returns, the next wait returns immediately, which is harmless.
    """
    try:
        os.read(descriptor, _QUEUE_BYTES)
    except BlockingIOError:
        return


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
