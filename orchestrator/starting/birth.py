"""A child between the request for it and its first instruction; whoever waits for it can give up at any moment."""

import signal

import attrs
import trio

from coterie.orchestrator.starting.child import Child
from coterie.orchestrator.starting.passage import REPORT_LIMIT, Report
from coterie.orchestrator.starting.starter import StartFailed

HEARD_WITHIN = 10.0
"""Seconds in which a zygote makes a child on the busiest machine."""
UNDONE_WITHIN = 5.0
"""Seconds in which a child that nobody wants any more is killed and reaped, unless something is stopped."""


class Unanswered(Exception):
    """Nobody is left who could report, and there is no child that we know of."""


@attrs.define(eq=False)
class Birth:
    """What is known of a child that is being started."""

    reports: trio.socket.SocketType
    child: Child | None = None
    maker: Child | None = None
    """The zygote, if there is one."""

    async def ready(self) -> Child:
        """The child, once it says that it is ready.

        Raises `StartFailed` when there will be none, and `Unanswered`. In both cases, and when cancelled, what had
        come into being is killed and reaped, for which a few seconds are taken if need be.
        """
        has_succeeded = False
        try:
            await self._wait_for_a_word()
            child = await self._listen()
            has_succeeded = True
        finally:
            if not has_succeeded:
                with trio.move_on_after(UNDONE_WITHIN, shield=True):
                    await self._undo()
        return child

    async def _wait_for_a_word(self) -> None:
        """A maker who has none to say is stopped, or stuck; it is killed, by which its silence gets an end."""
        if self.maker is not None:
            with trio.move_on_after(HEARD_WITHIN) as patience:
                await trio.lowlevel.wait_readable(self.reports)
            if patience.cancelled_caught:
                self.maker.send_signal(signal.SIGKILL)

    async def _listen(self) -> Child:
        while report := await self._hear():
            if report.failure is not None:
                raise StartFailed(report.failure, report.errno)
            if report.is_ready:
                assert self.child is not None
                return self.child
        if self.child is None:
            raise Unanswered
        self.child.send_signal(signal.SIGKILL)  # it may have closed what it was to report on, and live
        status = await self.child.wait()
        raise StartFailed(f"it ended before it was ready, with status {status}", status=status)

    async def _hear(self) -> Report | None:
        packet = await self.reports.recv(REPORT_LIMIT)
        if not packet:
            return None
        report = Report.from_bytes(packet)
        if self.child is None and report.pid is not None:
            self.child = Child.of(report.pid)
        return report

    async def _undo(self) -> None:
        while self.child is None and await self._hear():
            pass
        if self.child is not None:
            self.child.send_signal(signal.SIGKILL)
            await self.child.wait()
