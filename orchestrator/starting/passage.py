"""What travels to a child that is being started, and what is heard of it: descriptors one way, reports the other."""

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Self

import attrs
import msgspec
import trio

from coterie.orchestrator.starting.starter import Start

REPORT_LIMIT = 65_536
"""Bytes of one report, which is one packet."""
REASON_LIMIT = 4_000
COUNT_SIZE = 2
"""Bytes of a request to the zygote: how many descriptors come with it."""


@attrs.frozen(kw_only=True)
class Passed:
    """The descriptors of a start, by the numbers that they have in one process."""

    answer: int
    """A socket for reports; each is one packet."""
    order: int
    """A file in memory, at the beginning of the `Start` in it."""
    stdout: int
    stderr: int
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """From the order in which they travel. Raises `ValueError` if there are too few."""
        answer, order, stdout, stderr, *descriptors = numbers
        return cls(answer=answer, order=order, stdout=stdout, stderr=stderr, descriptors=tuple(descriptors))

    @property
    def numbers(self) -> tuple[int, ...]:
        """In the order in which they travel."""
        return (self.answer, self.order, self.stdout, self.stderr, *self.descriptors)


@attrs.frozen(kw_only=True)
class Report:
    """What is said about a child by itself, or by the zygote; of its number they both tell, whoever comes first."""

    pid: int | None = None
    is_ready: bool = False
    failure: str | None = None
    """Why there will be no child."""
    errno: int | None = None

    @classmethod
    def of_failure(cls, error: Exception) -> Self:
        """That *error* is why there will be no child."""
        if isinstance(error, OSError):
            return cls(failure=str(error)[:REASON_LIMIT], errno=error.errno)
        return cls(failure=f"{type(error).__name__}: {error}"[:REASON_LIMIT])

    def send(self, answer: socket.socket) -> bool:
        """Send it as one packet; False if nobody wants to hear of the child any more."""
        try:
            answer.send(msgspec.msgpack.encode(self))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """From one packet. Bytes that are no report are a bug: nobody but our own code has the socket."""
        return msgspec.msgpack.decode(data, type=cls)


@attrs.define(eq=False)
class Passage:
    """The way to a child that is being started, and back."""

    reports: trio.socket.SocketType
    """Our end. It ends when nobody has the other one, so see `let_go`."""
    passed: Passed
    _theirs: socket.socket

    def let_go(self) -> None:
        """Close our copy of their end, once it is passed."""
        self._theirs.close()


@contextmanager
def open_passage(start: Start, descriptors: Sequence[int], stdout: int | None, stderr: int | None) -> Iterator[Passage]:
    """What a child can be started with, by whichever starter; all of it is closed when the block ends."""
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
        order = stack.enter_context(open(os.memfd_create("start"), "w+b"))  # noqa: PTH123 - it has no path
        order.write(start.to_bytes())
        order.seek(0)
        passed = Passed(
            answer=theirs.fileno(),
            order=order.fileno(),
            stdout=stack.enter_context(_open_copy(stdout)).fileno(),
            stderr=stack.enter_context(_open_copy(stderr)).fileno(),
            descriptors=tuple(descriptors),
        )
        yield Passage(trio.socket.from_stdlib_socket(ours), passed, theirs)


def _open_copy(descriptor: int | None) -> IO[bytes]:
    """A copy that is none of the standard streams, which are put in their places one after another."""
    if descriptor is None:
        return open(os.devnull, "r+b", buffering=0)  # noqa: PTH123 - for its number
    return open(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3), "wb", buffering=0)  # noqa: PTH123 - it has no path
