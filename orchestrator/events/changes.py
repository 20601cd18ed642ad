"""Waiting until something changes in a directory, without looking again and again."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

LOOK_EVERY = 0.25
"""Seconds between two looks where the kernel does not tell."""

_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_QUEUE_BYTES = 65_536


@attrs.define(eq=False)
class Changes:
    """Wakes when files of the watched directories grow, or new ones appear.

    Tells by inotify. Where that is not to be had, or its limit of watches is reached, every wait ends after
    `LOOK_EVERY` seconds.
    """

    _descriptor: int | None
    _watched: set[Path] = attrs.field(factory=set)

    def watch(self, directory: Path) -> None:
        """Watch *directory* too, from now on; one that does not exist is passed over."""
        if self._descriptor is None or directory in self._watched or not directory.is_dir():
            return
        flags = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
        if _libc().inotify_add_watch(self._descriptor, os.fsencode(directory), flags) < 0:
            self.close()
        else:
            self._watched.add(directory)

    async def wait(self) -> None:
        """Return once something has changed since the last call returned, or without need."""
        if self._descriptor is None:
            await trio.sleep(LOOK_EVERY)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        # What changed is not asked: whoever waits looks at everything.
        os.read(self._descriptor, _QUEUE_BYTES)

    def close(self) -> None:
        """Stop being told; waiting goes on by looking."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def open_changes() -> Iterator[Changes]:
    """Changes that are told until the block ends."""
    changes = Changes(_open_inotify())
    try:
        yield changes
    finally:
        changes.close()


def _open_inotify() -> int | None:
    try:
        descriptor: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):  # no C library to load, or one without inotify
        return None
    return descriptor if descriptor >= 0 else None


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
