"""Handshake with a child that is being started: descriptors to it, reports from it."""

import fcntl
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Self

import attrs
import msgspec
import trio

from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, StartFailed

REPORT_LIMIT = 65_536
"""Bytes of one report, which is one packet."""
REASON_LIMIT = 4_000
COUNT_SIZE = 2
"""Bytes of a request to the zygote: how many descriptors come with it."""


@attrs.frozen(kw_only=True)
class PassedDescriptors:
    """The descriptors of a start, by the numbers that they have in one process."""

    answer: int
    """A socket for reports; each is one packet."""
    order: int
    """A file in memory, at the beginning of the `ProcessStart` in it."""
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
class ChildReport:
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
class DescriptorChannel:
    """The way to a child that is being started, and back."""

    reports: trio.socket.SocketType
    """Our end. It ends when nobody has the other one, so see `release`."""
    passed: PassedDescriptors
    _theirs: socket.socket

    def release(self) -> None:
        """Close our copy of their end, once it is passed."""
        self._theirs.close()


@contextmanager
def open_descriptor_channel(
    start: ProcessStart, descriptors: Sequence[int], stdout: int | None, stderr: int | None
) -> Iterator[DescriptorChannel]:
    """What a child can be started with, by whichever starter; all of it is closed when the block ends."""
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
        order = stack.enter_context(open(os.memfd_create("start"), "w+b"))  # noqa: PTH123 - it has no path
        order.write(start.to_bytes())
        order.seek(0)
        passed = PassedDescriptors(
            answer=theirs.fileno(),
            order=order.fileno(),
            stdout=stack.enter_context(_open_copy(stdout)).fileno(),
            stderr=stack.enter_context(_open_copy(stderr)).fileno(),
            descriptors=tuple(descriptors),
        )
        yield DescriptorChannel(trio.socket.from_stdlib_socket(ours), passed, theirs)


def _open_copy(descriptor: int | None) -> IO[bytes]:
    """A copy that is none of the standard streams, which are put in their places one after another."""
    if descriptor is None:
        return open(os.devnull, "r+b", buffering=0)  # noqa: PTH123 - for its number
    return open(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3), "wb", buffering=0)  # noqa: PTH123 - it has no path


REPORT_TIMEOUT = 10.0
"""Seconds in which a zygote makes a child on the busiest machine."""
UNDO_TIMEOUT = 5.0
"""Seconds in which a child that nobody wants any more is killed and reaped, unless something is stopped."""


class StartTimeout(Exception):
    """Nobody is left who could report, and there is no child that we know of."""


@attrs.define(eq=False)
class PendingChild:
    """What is known of a child that is being started."""

    reports: trio.socket.SocketType
    child: ChildProcess | None = None
    maker: ChildProcess | None = None
    """The zygote, if there is one."""

    async def ready(self) -> ChildProcess:
        """The child, once it says that it is ready.

        Raises `StartFailed` when there will be none, and `StartTimeout`. In both cases, and when cancelled, what had
        come into being is killed and reaped, for which a few seconds are taken if need be.
        """
        has_succeeded = False
        try:
            await self._wait_for_report()
            child = await self._listen()
            has_succeeded = True
        finally:
            if not has_succeeded:
                with trio.move_on_after(UNDO_TIMEOUT, shield=True):
                    await self._undo()
        return child

    async def _wait_for_report(self) -> None:
        """A maker who has none to say is stopped, or stuck; it is killed, by which its silence gets an end."""
        if self.maker is not None:
            with trio.move_on_after(REPORT_TIMEOUT) as patience:
                await trio.lowlevel.wait_readable(self.reports)
            if patience.cancelled_caught:
                self.maker.send_signal(signal.SIGKILL)

    async def _listen(self) -> ChildProcess:
        while report := await self._receive():
            if report.failure is not None:
                raise StartFailed(report.failure, report.errno)
            if report.is_ready:
                assert self.child is not None
                return self.child
        if self.child is None:
            raise StartTimeout
        self.child.send_signal(signal.SIGKILL)  # it may have closed what it was to report on, and live
        status = await self.child.wait()
        raise StartFailed(f"it ended before it was ready, with status {status}", status=status)

    async def _receive(self) -> ChildReport | None:
        packet = await self.reports.recv(REPORT_LIMIT)
        if not packet:
            return None
        report = ChildReport.from_bytes(packet)
        if self.child is None and report.pid is not None:
            self.child = ChildProcess.of(report.pid)
        return report

    async def _undo(self) -> None:
        while self.child is None and await self._receive():
            pass
        if self.child is not None:
            self.child.send_signal(signal.SIGKILL)
            await self.child.wait()
