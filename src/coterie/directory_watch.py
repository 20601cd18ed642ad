"""Waiting for changes in directories, with inotify or by polling."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie import inotify

WatchEvent = Literal["made", "moved", "listening"]
"""A new name; a file that was renamed into its place; a socket, whose mode is set once it listens."""

# For letters only renames count: the locks that are made beside them are our own.
_EVENT_MASKS: dict[WatchEvent, int] = {
    "made": inotify.CREATE,
    "moved": inotify.MOVED_TO,
    "listening": inotify.ATTRIB | inotify.MOVED_TO,
}


@attrs.define(eq=False)
class DirectoryWatch:
    """Wakes who waits; what comes between two waits is kept, so watch and look first and wait then."""

    _descriptor: int | None
    """None where the kernel does not tell."""

    def watch(self, directory: Path, notice: WatchEvent) -> None:
        """Be told of *directory* from now on; one that is not there, or over the limit of watches, is passed over.

        Asked again, it is watched also if it was deleted and made anew.
        """
        if self._descriptor is not None:
            inotify.add_watch(self._descriptor, directory, _EVENT_MASKS[notice])

    async def wait(self) -> None:
        """Return once something came since the last call returned; where nothing tells, never."""
        if self._descriptor is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
            inotify.drain_events(self._descriptor)


@contextmanager
def open_directory_watch() -> Iterator[DirectoryWatch]:
    """Be told until the block ends."""
    descriptor = inotify.open_inotify()
    try:
        yield DirectoryWatch(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


POLL_INTERVAL = 0.25
"""Seconds between two looks where the kernel does not tell."""


@attrs.define(eq=False)
class PollingDirectoryWatch:
    """Wakes when files of the watched directories grow, or new ones appear.

    Tells by inotify. Where that is not to be had, or its limit of watches is reached, every wait ends after
    `POLL_INTERVAL` seconds.
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
            await trio.sleep(POLL_INTERVAL)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        inotify.drain_events(self._descriptor)

    def close(self) -> None:
        """Stop being told; waiting goes on by looking."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def open_polling_watch() -> Iterator[PollingDirectoryWatch]:
    """Changes that are told until the block ends."""
    changes = PollingDirectoryWatch(inotify.open_inotify())
    try:
        yield changes
    finally:
        changes.close()
