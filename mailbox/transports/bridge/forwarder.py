"""Forwarding of waiting mail when another session starts to listen."""

import contextlib
from collections.abc import AsyncIterator, Callable

import trio

from coterie.directory_watch import DirectoryWatch, open_directory_watch
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, make_directory
from coterie.mailbox.transports.bridge.transport import BridgeTransport

POLL_INTERVAL = 2.0
"""Seconds between polls, for sockets in other directories, and for sessions that could not take all mail."""

ReportFailure = Callable[[MailboxFailed], None]


@contextlib.asynccontextmanager
async def open_forwarder(
    transport: BridgeTransport, report: ReportFailure, *, every: float = POLL_INTERVAL
) -> AsyncIterator[None]:
    """Forward pending mail until the block ends: now, when a message is added, and when a session starts to listen.

    Also polls *every* seconds. A disk error does not end forwarding: the messages stay, and the next poll retries.
    *report* is called once for each new failure, and again if a failure recurs after a success.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forward_forever, transport, report, every)
        yield
        nursery.cancel_scope.cancel()


async def _forward_forever(transport: BridgeTransport, report: ReportFailure, every: float) -> None:
    last_reported: str | None = None
    with open_directory_watch() as watch:
        while True:
            try:
                # Watch before forwarding, so that no change in between is missed.
                await trio.to_thread.run_sync(_watch_sync, transport, watch)
                await transport.forward()
                last_reported = None
            except MailboxFailed as exc:
                if str(exc) != last_reported:
                    report(exc)
                last_reported = str(exc)
            with trio.move_on_after(every):
                await watch.wait()


def _watch_sync(transport: BridgeTransport, watch: DirectoryWatch) -> None:
    # Both directories are created if missing, because inotify cannot watch a missing directory.
    with contextlib.suppress(BridgeUnusable):  # then no session can listen there
        watch.watch(make_directory(), "listening")
    watch.watch(transport.outgoing.create_directory_sync(), "made")
    for directory in transport.outgoing.directories_sync():
        watch.watch(directory, "moved")
