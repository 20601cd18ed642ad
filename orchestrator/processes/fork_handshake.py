"""Handshake between the root and a starting child: descriptors to the child, reports to the root."""

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
"""Maximum bytes of one report, which is one packet."""
REASON_LIMIT = 4_000
COUNT_SIZE = 2
"""Bytes of a request to the zygote, which is the number of passed descriptors."""


@attrs.frozen(kw_only=True)
class PassedDescriptors:
    """Descriptors for a new child, with their numbers in one process."""

    answer: int
    """Socket for reports; each report is one packet."""
    start: int
    """In-memory file with the `ProcessStart`, positioned at its beginning."""
    stdout: int
    stderr: int
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """Build from numbers in transfer order. Raises `ValueError` if there are too few."""
        answer, start, stdout, stderr, *descriptors = numbers
        return cls(answer=answer, start=start, stdout=stdout, stderr=stderr, descriptors=tuple(descriptors))

    @property
    def numbers(self) -> tuple[int, ...]:
        """All numbers, in transfer order."""
        return (self.answer, self.start, self.stdout, self.stderr, *self.descriptors)


@attrs.frozen(kw_only=True)
class ChildReport:
    """Report about a child, sent by the child or by the zygote; both report the pid, in any order."""

    pid: int | None = None
    is_ready: bool = False
    failure: str | None = None
    """Reason why the child cannot be started."""
    errno: int | None = None

    @classmethod
    def of_failure(cls, error: Exception) -> Self:
        """Build the report that *error* prevents the start of the child."""
        if isinstance(error, OSError):
            return cls(failure=str(error)[:REASON_LIMIT], errno=error.errno)
        return cls(failure=f"{type(error).__name__}: {error}"[:REASON_LIMIT])

    def send(self, answer: socket.socket) -> bool:
        """Send the report as one packet; return False if the root has abandoned the start."""
        try:
            answer.send(msgspec.msgpack.encode(self))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode one packet. Invalid bytes are a bug, because only our own code holds the socket."""
        return msgspec.msgpack.decode(data, type=cls)


@attrs.define(eq=False)
class DescriptorChannel:
    """Descriptors for a new child, and the root's end of its report socket."""

    reports: trio.socket.SocketType
    """Root's end of the report socket; it reads end of file once all copies of the other end are closed."""
    passed: PassedDescriptors
    _child_end: socket.socket

    def release(self) -> None:
        """Close the root's copy of the child's end, after it was passed."""
        self._child_end.close()


@contextmanager
def open_descriptor_channel(
    start: ProcessStart, descriptors: Sequence[int], stdout: int | None, stderr: int | None
) -> Iterator[DescriptorChannel]:
    """Open the descriptors for a new child of any starter; all are closed when the block ends."""
    with ExitStack() as stack:
        root_end, child_end = (stack.enter_context(end) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
        file = stack.enter_context(open(os.memfd_create("start"), "w+b"))  # noqa: PTH123 - it has no path
        file.write(start.to_bytes())
        file.seek(0)
        passed = PassedDescriptors(
            answer=child_end.fileno(),
            start=file.fileno(),
            stdout=stack.enter_context(_open_copy(stdout)).fileno(),
            stderr=stack.enter_context(_open_copy(stderr)).fileno(),
            descriptors=tuple(descriptors),
        )
        yield DescriptorChannel(trio.socket.from_stdlib_socket(root_end), passed, child_end)


def _open_copy(descriptor: int | None) -> IO[bytes]:
    """Copy *descriptor* to a number above 2, because the child overwrites its standard streams one by one."""
    if descriptor is None:
        return open(os.devnull, "r+b", buffering=0)  # noqa: PTH123 - for its number
    return open(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3), "wb", buffering=0)  # noqa: PTH123 - it has no path


REPORT_TIMEOUT = 10.0
"""Seconds in which a zygote forks a child even on a busy machine."""
UNDO_TIMEOUT = 5.0
"""Maximum seconds to kill and reap an abandoned child."""


class StartTimeout(Exception):
    """The report socket was closed before any report, and no child is known."""


@attrs.define(eq=False)
class PendingChild:
    """State of a child that is being started."""

    reports: trio.socket.SocketType
    child: ChildProcess | None = None
    maker: ChildProcess | None = None
    """Zygote that forks the child; None without a zygote."""

    async def ready(self) -> ChildProcess:
        """Wait until the child reports that it is ready, and return it.

        Raises `StartFailed` if the child cannot be started, and `StartTimeout`. After an error or a cancellation an
        existing child is killed and reaped, which may take a few seconds.
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
        """Wait for the first report; kill a zygote that sends none in time, which closes the report socket."""
        if self.maker is not None:
            with trio.move_on_after(REPORT_TIMEOUT) as timeout:
                await trio.lowlevel.wait_readable(self.reports)
            if timeout.cancelled_caught:
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
        self.child.send_signal(signal.SIGKILL)  # it may be alive with a closed report socket
        status = await self.child.wait()
        raise StartFailed(f"the child process ended before it was ready, with status {status}", status=status)

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
