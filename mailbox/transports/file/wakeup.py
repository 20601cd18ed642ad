"""Wakeup of a reader by writers: by datagram, else by inotify, and by polling as a fallback.

The reader marks in its lock file that it sleeps, and is woken only then. The reader checks the log again after it has
set the mark, and a writer checks the mark after its append, so one of the two notices the other. A writer clears the
mark before it sends the wakeup, so that other writers send none until the reader sleeps again.
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
"""Seconds after which a sleeping reader polls: a writer may have been killed between its append and the wakeup."""

LOCK_FILE = "reader.lock"
"""The process that holds the lock on this file is the reader."""

_SOCKET_NAME = "bell"
_WAKEUP = b"\0"
_ASLEEP = b"1"
_AWAKE = b"0"


@attrs.define(eq=False)
class WakeupListener:
    """Wakeup channel of the reader. A wakeup between two waits is kept."""

    _lock: int | None
    """Descriptor of the lock file; None if the reader sets no sleep mark."""
    _descriptor: int | None
    """Descriptor that becomes readable on a wakeup; None if there are no wakeups."""

    async def wait(self, has_news: Callable[[], bool]) -> bool:
        """Return True on a wakeup or if *has_news*, which may raise; False after `POLL_INTERVAL` seconds."""
        was_woken = False
        try:
            self._set_state(_ASLEEP)
            if has_news():
                await trio.lowlevel.checkpoint()
                return True
            was_woken = await self._listen()
            return was_woken
        finally:
            if not was_woken:  # else the writer has cleared the mark
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
                # A copy-on-write file system on a full disk: no writer sends a wakeup then, and the reader polls.
                return


@contextmanager
def open_wakeup_listener(directory: Path, lock: int) -> Iterator[WakeupListener]:
    """Create the wakeup socket of the mailbox in *directory*, for its one reader, which holds *lock*. Raises `OSError`.

    The socket file stays when the block ends: by then the mailbox may have been recreated with a socket of another
    reader.
    """
    os.pwrite(lock, _AWAKE, 0)
    descriptor = _bind(directory)
    # inotify also reports writes to the lock file, so a sleep mark of the reader would wake the reader itself.
    listener = (
        WakeupListener(lock, descriptor)
        if descriptor is not None
        else WakeupListener(None, descriptor := _watch(directory))
    )
    try:
        yield listener
    finally:
        if descriptor is not None:
            os.close(descriptor)


@attrs.define(eq=False)
class WakeupSender:
    """Wakeup channel of a writer, for one mailbox."""

    _directory: int
    _lock: int
    _socket: socket.socket

    @classmethod
    def open(cls, directory: Path) -> "WakeupSender":
        """Open the wakeup channel of the mailbox in *directory*. Raises `OSError`."""
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return cls(opened, lock, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))

    def notify(self) -> None:
        """Wake the reader if it sleeps."""
        try:
            if os.pread(self._lock, 1, 0) == _ASLEEP:
                # Clear the mark before sending: later, it could clear the mark of the next sleep, and no writer would
                # wake it.
                os.pwrite(self._lock, _AWAKE, 0)
                self._send()
        except OSError:
            # No reader, no socket, or a full socket buffer: there is nothing to do in any of these cases.
            return

    def close(self) -> None:
        """Close its descriptors."""
        self._socket.close()
        os.close(self._lock)
        os.close(self._directory)

    def _send(self) -> None:
        try:
            self._socket.send(_WAKEUP)
        except BlockingIOError:
            return
        except OSError:
            # Not connected yet, or connected to a reader that has ended.
            self._socket.connect(_socket_path(self._directory))
            self._socket.send(_WAKEUP)


def _socket_path(directory: int) -> str:
    # Socket paths are limited to 107 bytes; this one is short wherever the mailbox lies.
    return f"/proc/self/fd/{directory}/{_SOCKET_NAME}"


def _bind(directory: Path) -> int | None:
    (directory / _SOCKET_NAME).unlink(missing_ok=True)  # left by an earlier reader
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.bind(_socket_path(opened))
            return sock.detach()
    except OSError:
        return None  # the file system does not support sockets
    finally:
        os.close(opened)


def _watch(directory: Path) -> int | None:
    descriptor = inotify.open_inotify()
    if descriptor is None or inotify.add_watch(descriptor, directory, inotify.MODIFY | inotify.CREATE):
        return descriptor
    os.close(descriptor)
    return None
