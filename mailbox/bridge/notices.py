"""What the kernel tells of directories: that something was made there, moved in, or made ready."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie.mailbox import inotify

Notice = Literal["made", "moved", "listening"]
"""A new name; a file that was renamed into its place; a socket, whose mode is set once it listens."""

# For letters only renames count: the locks that are made beside them are our own.
_EVENTS: dict[Notice, int] = {
    "made": inotify.CREATE,
    "moved": inotify.MOVED_TO,
    "listening": inotify.ATTRIB | inotify.MOVED_TO,
}


@attrs.define(eq=False)
class Notices:
    """Wakes who waits; what comes between two waits is kept, so watch and look first and wait then."""

    _descriptor: int | None
    """None where the kernel does not tell."""

    def watch(self, directory: Path, notice: Notice) -> None:
        """Be told of *directory* from now on; one that is not there, or over the limit of watches, is passed over.

        Asked again, it is watched also if it was deleted and made anew.
        """
        if self._descriptor is not None:
            inotify.add_watch(self._descriptor, directory, _EVENTS[notice])

    async def wait(self) -> None:
        """Return once something came since the last call returned; where nothing tells, never."""
        if self._descriptor is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
            inotify.drain(self._descriptor)


@contextmanager
def open_notices() -> Iterator[Notices]:
    """Be told until the block ends."""
    descriptor = inotify.open_inotify()
    try:
        yield Notices(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
