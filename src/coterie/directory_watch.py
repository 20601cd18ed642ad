"""Watches that wait for changes in directories, with inotify or by polling."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie import inotify

WatchEvent = Literal["made", "moved", "listening"]
"""Change to wait for: a file is created; a file is renamed into the directory; a socket starts to listen."""

# Messages are renamed into place; watching creations would also report our own lock files. The mode of a socket is set
# once it listens.
_EVENT_MASKS: dict[WatchEvent, int] = {
    "made": inotify.CREATE,
    "moved": inotify.MOVED_TO,
    "listening": inotify.ATTRIB | inotify.MOVED_TO,
}


@attrs.define(eq=False)
class DirectoryWatch:
    """Waits for changes in directories.

    A change between two calls of `wait` is not lost. So call `watch`, read the directory, and then `wait`.
    """

    _descriptor: int | None
    """The inotify descriptor; None if inotify is unavailable."""

    def watch(self, directory: Path, notice: WatchEvent) -> None:
        """Watch *directory* from now on; ignored if it does not exist or the limit of watches is reached.

        Call it again to watch a directory that was deleted and created again.
        """
        if self._descriptor is not None:
            inotify.add_watch(self._descriptor, directory, _EVENT_MASKS[notice])

    async def wait(self) -> None:
        """Return when something has changed since the last call returned; without inotify, never return."""
        if self._descriptor is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
            inotify.drain_events(self._descriptor)


@contextmanager
def open_directory_watch() -> Iterator[DirectoryWatch]:
    """Provide a watch until the block ends."""
    descriptor = inotify.open_inotify()
    try:
        yield DirectoryWatch(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


POLL_INTERVAL = 0.25
"""Seconds between two polls when inotify is unavailable."""


@attrs.define(eq=False)
class PollingDirectoryWatch:
    """Waits until files of the watched directories grow or new files appear.

    Without inotify, or when its limit of watches is reached, every wait ends after `POLL_INTERVAL` seconds.
    """

    _descriptor: int | None
    _watched: set[Path] = attrs.field(factory=set)

    def watch(self, directory: Path) -> None:
        """Watch *directory* from now on; ignored if it does not exist."""
        if self._descriptor is None or directory in self._watched or not directory.is_dir():
            return
        if inotify.add_watch(self._descriptor, directory, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO):
            self._watched.add(directory)
        else:
            self.close()

    async def wait(self) -> None:
        """Return when something has changed since the last call returned; may return without a change."""
        if self._descriptor is None:
            await trio.sleep(POLL_INTERVAL)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        inotify.drain_events(self._descriptor)

    def close(self) -> None:
        """Close the inotify descriptor; later waits poll."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def open_polling_watch() -> Iterator[PollingDirectoryWatch]:
    """Provide a watch that falls back to polling, until the block ends."""
    changes = PollingDirectoryWatch(inotify.open_inotify())
    try:
        yield changes
    finally:
        changes.close()
