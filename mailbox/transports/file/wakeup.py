"""Wakeup of a sleeping mailbox reader by writers: by a datagram, or else by inotify (file events), or else by polling.

Before it sleeps, the reader sets a mark in its lock file and then checks the log again. A writer checks the mark after
its append, so one of the two notices the other and no message is missed. A writer clears the mark before it sends the
datagram, so that other writers send none until the reader sleeps again.
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
"""Seconds after which a sleeping reader checks for mail, because a writer may be killed between append and wakeup."""

LOCK_FILE = "reader.lock"
"""Name of a file in each mailbox directory. The process that holds the lock on this file is the mailbox's reader."""

_SOCKET_NAME = "bell"
_WAKEUP = b"\0"
_ASLEEP = b"1"
_AWAKE = b"0"


@attrs.define(eq=False)
class WakeupListener:
    """Receiver of the wakeups that writers send to the reader of a mailbox. A wakeup between two waits is not lost."""

    _lock: int | None
    """Descriptor of the lock file, where the reader marks that it sleeps; None if it does not (inotify, polling)."""
    _descriptor: int | None
    """Socket or inotify descriptor that becomes readable on a wakeup; None if the reader can only poll."""

    async def wait(self, has_news: Callable[[], bool]) -> bool:
        """Return True after a wakeup, or immediately if *has_news*() is True; False after `POLL_INTERVAL` seconds."""
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
    """Receive wakeups for the mailbox in *directory* until the block ends, as its only reader, which holds *lock*.

    Creates a socket file and does not delete it at the end, because by then the file may belong to the reader of a
    recreated mailbox. Raises `OSError`.
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
    """Sender of wakeups to the reader of one mailbox; each writer of the mailbox has one."""

    _directory: int
    _lock: int
    _socket: socket.socket

    @classmethod
    def open(cls, directory: Path) -> "WakeupSender":
        """Open the lock file and a socket, to wake the reader of the mailbox in *directory*. Raises `OSError`."""
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return cls(opened, lock, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))

    def notify(self) -> None:
        """Send a wakeup if the reader has marked that it sleeps. Never raises: without a wakeup the reader polls."""
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
        """Close the socket and the descriptors of the lock file and the mailbox directory."""
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
