"""How a writer wakes the reader: a datagram; where there can be none the kernel's notices; and a slow look at last.

The reader says in its lock file whether it sleeps, and is rung for only then. It looks into the log once more after it
has said so, and a writer looks at what it says after the append, so one of the two sees the other. Whoever rings says
first that the reader is awake, so that others do not ring, too, until it is.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from coterie import inotify

POLL_INTERVAL = 1.0
"""Seconds after which a reader looks by itself: a writer may have been killed between its append and the ring."""

LOCK_FILE = "reader.lock"
"""Whoever holds the lock on it is the reader."""

_SOCKET_NAME = "bell"
_WAKEUP = b"\0"
_ASLEEP = b"1"
_AWAKE = b"0"


@attrs.define(eq=False)
class WakeupListener:
    """The reader's end. What rings between two waits is kept."""

    _lock: int | None
    """The reader's lock file; None if no writer needs to know whether it sleeps."""
    _descriptor: int | None
    """Readable when it has rung; None if nothing rings."""

    async def wait(self, has_news: Callable[[], bool]) -> bool:
        """Return whether it has rung, or *has_news*, which may raise; at the latest after `POLL_INTERVAL` seconds."""
        has_rung = False
        try:
            self._set_state(_ASLEEP)
            if has_news():
                await trio.lowlevel.checkpoint()
                return True
            has_rung = await self._listen()
            return has_rung
        finally:
            if not has_rung:  # else whoever rang has said so
                self._set_state(_AWAKE)

    async def _listen(self) -> bool:
        with trio.move_on_after(POLL_INTERVAL):
            if self._descriptor is None:
                await trio.sleep_forever()
            else:
                await trio.lowlevel.wait_readable(self._descriptor)
                inotify.drain_events(self._descriptor)
                return True
        return False

    def _set_state(self, state: bytes) -> None:
        if self._lock is not None:
            try:
                os.pwrite(self._lock, state, 0)
            except OSError:
                # A disk that is full, and copies what is written over: nobody rings then, and the slow look remains.
                return


@contextmanager
def open_wakeup_listener(directory: Path, lock: int) -> Iterator[WakeupListener]:
    """Hang up the bell of the mailbox in *directory*; only its one reader may, who holds *lock*. Raises `OSError`.

    It stays there, dumb, when the block ends: by then the mailbox may have been made again, with a bell of another.
    """
    os.pwrite(lock, _AWAKE, 0)
    descriptor = _bind(directory)
    # The kernel tells of every write in the directory, also of one into the lock file.
    bell = (
        WakeupListener(lock, descriptor)
        if descriptor is not None
        else WakeupListener(None, descriptor := _watch(directory))
    )
    try:
        yield bell
    finally:
        if descriptor is not None:
            os.close(descriptor)


@attrs.define(eq=False)
class WakeupSender:
    """The writer's end, for one mailbox."""

    _directory: int
    _lock: int
    _socket: socket.socket

    @classmethod
    def open(cls, directory: Path) -> "WakeupSender":
        """For the mailbox in *directory*. Raises `OSError`."""
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return cls(opened, lock, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))

    def notify(self) -> None:
        """Wake the reader, if it sleeps."""
        try:
            if os.pread(self._lock, 1, 0) == _ASLEEP:
                # Before the ring: said after it, it could be about the sleep that follows, for which nobody would ring.
                os.pwrite(self._lock, _AWAKE, 0)
                self._send()
        except OSError:
            # No reader, no bell, or one that has rung so often that it is full: nothing to do about any of them.
            return

    def close(self) -> None:
        """Give its descriptors back."""
        self._socket.close()
        os.close(self._lock)
        os.close(self._directory)

    def _send(self) -> None:
        try:
            self._socket.send(_WAKEUP)
        except BlockingIOError:
            return
        except OSError:
            # Not connected yet, or to a reader that is gone.
            self._socket.connect(_socket_path(self._directory))
            self._socket.send(_WAKEUP)


def _socket_path(directory: int) -> str:
    # The path of a socket has at most 107 bytes; this one is short wherever the mailbox lies.
    return f"/proc/self/fd/{directory}/{_SOCKET_NAME}"


def _bind(directory: Path) -> int | None:
    (directory / _SOCKET_NAME).unlink(missing_ok=True)  # of an earlier reader
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.bind(_socket_path(opened))
            return bell.detach()
    except OSError:
        return None  # a file system that has no sockets
    finally:
        os.close(opened)


def _watch(directory: Path) -> int | None:
    descriptor = inotify.open_inotify()
    if descriptor is None or inotify.add_watch(descriptor, directory, inotify.MODIFY | inotify.CREATE):
        return descriptor
    os.close(descriptor)
    return None
