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
"""Change to wait for. "made": a file is created. "moved": a file is renamed into the directory. "listening": a socket
in the directory starts to accept connections."""

# Messages are renamed into place; watching creations would also report our own lock files. The mode of a socket is set
# once it listens.
_EVENT_MASKS: dict[WatchEvent, int] = {
    "made": inotify.CREATE,
    "moved": inotify.MOVED_TO,
    "listening": inotify.ATTRIB | inotify.MOVED_TO,
}


@attrs.define(eq=False)
class DirectoryWatch:
    """Waits for changes in directories. Without inotify no change is reported, so a caller should limit each wait.

    A change between two calls of `wait` is not lost. So call `watch`, read the directory, and then call `wait`.
    """

    _descriptor: int | None
    """The inotify descriptor; None if inotify is unavailable."""

    def watch(self, directory: Path, notice: WatchEvent) -> None:
        """Watch *directory* for changes of the kind *notice* from now on.

        Does nothing if *directory* does not exist, or if the kernel allows no more watches. Call this method again
        after *directory* was deleted and created again.
        """
        if self._descriptor is not None:
            inotify.add_watch(self._descriptor, directory, _EVENT_MASKS[notice])

    async def wait(self) -> None:
        """Return when a watched change has occurred since the last call returned; without inotify, never return."""
        if self._descriptor is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
            inotify.drain_events(self._descriptor)


@contextmanager
def open_directory_watch() -> Iterator[DirectoryWatch]:
    """Provide a `DirectoryWatch`, which is closed at the end of the block."""
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
        """Watch *directory* from now on; does nothing if *directory* does not exist or is watched already.

        If the kernel allows no more watches, all later waits poll.
        """
        if self._descriptor is None or directory in self._watched or not directory.is_dir():
            return
        if inotify.add_watch(self._descriptor, directory, inotify.MODIFY | inotify.CREATE | inotify.MOVED_TO):
            self._watched.add(directory)
        else:
            self.close()

    async def wait(self) -> None:
        """Return when a watched directory has changed since the last call returned; may return without a change."""
        if self._descriptor is None:
            await trio.sleep(POLL_INTERVAL)
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        inotify.drain_events(self._descriptor)

    def close(self) -> None:
        """Close the inotify descriptor; after that, each `wait` returns after `POLL_INTERVAL` seconds."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def open_polling_watch() -> Iterator[PollingDirectoryWatch]:
    """Provide a watch that polls if inotify is unavailable; the watch is closed at the end of the block."""
    changes = PollingDirectoryWatch(inotify.open_inotify())
    try:
        yield changes
    finally:
        changes.close()
