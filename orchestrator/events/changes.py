"""Waiting until something changes in a directory, without looking again and again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from coterie.mailbox import inotify

LOOK_EVERY = 0.25
"""Seconds between two looks where the kernel does not tell."""


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
        if inotify.add_watch(self._descriptor, directory, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO):
            self._watched.add(directory)
        else:
            self.close()

    async def wait(self) -> None:
        """Return once something has changed since the last call returned, or without need."""
        if self._descriptor is None:
            await trio.sleep(LOOK_EVERY)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        inotify.drain(self._descriptor)

    def close(self) -> None:
        """Stop being told; waiting goes on by looking."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def open_changes() -> Iterator[Changes]:
    """Changes that are told until the block ends."""
    changes = Changes(inotify.open_inotify())
    try:
        yield changes
    finally:
        changes.close()
