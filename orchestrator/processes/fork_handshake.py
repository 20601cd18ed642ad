"""Handshake of a child's start: the root passes descriptors; child and zygote report pid, readiness or failure."""

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
"""Maximum bytes of one child report, which is sent as one packet."""
REASON_LIMIT = 4_000
COUNT_SIZE = 2
"""Size in bytes of a request to the zygote; its content is the number of passed descriptors."""


@attrs.frozen(kw_only=True)
class PassedDescriptors:
    """Numbers, in the process that uses them, of the descriptors that the root (supervisor) passes to a new child."""

    answer: int
    """Socket on which the child sends its reports to the root; each report is one packet."""
    start: int
    """In-memory file that contains the encoded `ProcessStart`, with the read position at its beginning."""
    stdout: int
    stderr: int
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """Build from the numbers in the order of `numbers`. Raises `ValueError` if there are fewer than four."""
        answer, start, stdout, stderr, *descriptors = numbers
        return cls(answer=answer, start=start, stdout=stdout, stderr=stderr, descriptors=tuple(descriptors))

    @property
    def numbers(self) -> tuple[int, ...]:
        """All descriptor numbers, in the order in which they are passed to the child."""
        return (self.answer, self.start, self.stdout, self.stderr, *self.descriptors)


@attrs.frozen(kw_only=True)
class ChildReport:
    """Report to the root about a starting child or zygote. Child and zygote both send a child's pid, in any order."""

    pid: int | None = None
    is_ready: bool = False
    failure: str | None = None
    """Reason why the child cannot be started; None if nothing failed."""
    errno: int | None = None

    @classmethod
    def of_failure(cls, error: Exception) -> Self:
        """Build the report that the child cannot be started because of *error*."""
        if isinstance(error, OSError):
            return cls(failure=str(error)[:REASON_LIMIT], errno=error.errno)
        return cls(failure=f"{type(error).__name__}: {error}"[:REASON_LIMIT])

    def send(self, answer: socket.socket) -> bool:
        """Send the report to the root as one packet. Returns False if the root no longer waits for the child."""
        try:
            answer.send(msgspec.msgpack.encode(self))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode one report packet. Invalid bytes are a bug, because only our own processes have the socket."""
        return msgspec.msgpack.decode(data, type=cls)


@attrs.define(eq=False)
class DescriptorChannel:
    """Descriptors to pass to a new child, and the root's end of the socket on which the child's reports arrive."""

    reports: trio.socket.SocketType
    """Root's end of the report socket. It reads end of file when the child and all others have closed the other end."""
    passed: PassedDescriptors
    _child_end: socket.socket

    def release(self) -> None:
        """Close the root's copy of the child's socket end after passing it; then `reports` ends when the child dies."""
        self._child_end.close()


@contextmanager
def open_descriptor_channel(
    start: ProcessStart, descriptors: Sequence[int], stdout: int | None, stderr: int | None
) -> Iterator[DescriptorChannel]:
    """Open the descriptors for a child that starts with *start*; close all but *descriptors* when the block ends."""
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
    """Copy *descriptor* to a number above 2, because the child replaces its standard streams; None is /dev/null."""
    if descriptor is None:
        return open(os.devnull, "r+b", buffering=0)  # noqa: PTH123 - for its number
    return open(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3), "wb", buffering=0)  # noqa: PTH123 - it has no path


REPORT_TIMEOUT = 10.0
"""Maximum seconds for a zygote to send the first report about a child, even on a busy machine."""
UNDO_TIMEOUT = 5.0
"""Maximum seconds to kill and reap a child whose start was abandoned."""


class StartTimeout(Exception):
    """Error: the zygote forked no child: it had ended, or the report socket was closed before it delivered a pid."""


@attrs.define(eq=False)
class PendingChild:
    """A child process that is starting: the socket for its reports, and its handle once its pid is known."""

    reports: trio.socket.SocketType
    child: ChildProcess | None = None
    maker: ChildProcess | None = None
    """Handle of the zygote that forks the child; None if the child is not forked from a zygote."""

    async def ready(self) -> ChildProcess:
        """Wait for the child's report that it is ready, and return the handle of the child.

        Raises `StartFailed` if the child cannot be started, and `StartTimeout` if the zygote forked no child. After an
        error or a cancellation the child is killed and reaped, which may take a few seconds.
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
        """Wait for the first report. Kill a zygote that sends none in time, so that the report socket is closed."""
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
        raise StartFailed(f"the new process ended with status {status} before it was ready; try again", status=status)

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
