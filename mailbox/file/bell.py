"""How a writer wakes the reader: a datagram; where there can be none the kernel's notices; and a slow look at last."""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

LOOK_EVERY = 1.0
"""Seconds after which a reader looks by itself: a writer may have been killed between its append and the bell."""

_BELL = "bell"
_IN_MODIFY = 0x2
_IN_CREATE = 0x100
_QUEUE_BYTES = 65_536


@attrs.define(eq=False)
class Bell:
    """The reader's end. What rings between two waits is kept, so look first and wait then."""

    _descriptor: int | None
    """Readable when it has rung; None if nothing rings."""

    async def wait(self) -> bool:
        """Return whether it has rung, at the latest after `LOOK_EVERY` seconds."""
        with trio.move_on_after(LOOK_EVERY):
            if self._descriptor is None:
                await trio.sleep_forever()
            else:
                await trio.lowlevel.wait_readable(self._descriptor)
                self._silence(self._descriptor)
                return True
        return False

    def _silence(self, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(descriptor, _QUEUE_BYTES):
                pass


@contextmanager
def open_bell(directory: Path) -> Iterator[Bell]:
    """Hang up the bell of the mailbox in *directory*; only its one reader may. Raises `OSError`.

    It stays there, dumb, when the block ends: by then the mailbox may have been made again, with a bell of another.
    """
    descriptor = _bind(directory)
    if descriptor is None:
        descriptor = _watch(directory)
    try:
        yield Bell(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@attrs.define(eq=False)
class Ringer:
    """The writer's end, for one mailbox."""

    _directory: int
    _socket: socket.socket

    @classmethod
    def open(cls, directory: Path) -> "Ringer":
        """For the mailbox in *directory*. Raises `OSError`."""
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return cls(opened, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))

    def ring(self) -> None:
        """Wake the reader, if there is one."""
        # No reader, no bell, or one that has rung so often that it is full: nothing to do about any of them.
        with contextlib.suppress(OSError):
            self._socket.sendto(b"\0", _bell_in(self._directory))

    def close(self) -> None:
        """Give its descriptors back."""
        self._socket.close()
        os.close(self._directory)


def _bell_in(directory: int) -> str:
    # The path of a socket has at most 107 bytes; this one is short wherever the mailbox lies.
    return f"/proc/self/fd/{directory}/{_BELL}"


def _bind(directory: Path) -> int | None:
    (directory / _BELL).unlink(missing_ok=True)  # of an earlier reader
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.bind(_bell_in(opened))
            return bell.detach()
    except OSError:
        return None  # a file system that has no sockets
    finally:
        os.close(opened)


def _watch(directory: Path) -> int | None:
    libc = ctypes.CDLL(None)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _IN_MODIFY | _IN_CREATE) < 0:
        os.close(descriptor)
        return None
    return descriptor
