"""Forwarding of waiting mail when another session starts to listen."""

import contextlib
from collections.abc import AsyncIterator, Callable

import trio

from coterie.directory_watch import DirectoryWatch, open_directory_watch
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, make_directory
from coterie.mailbox.transports.bridge.transport import BridgeTransport

POLL_INTERVAL = 2.0
"""Seconds between two looks at least: for sockets that are elsewhere, and for sessions that could not take all."""

ReportFailure = Callable[[MailboxFailed], None]


@contextlib.asynccontextmanager
async def open_forwarder(
    transport: BridgeTransport, tell: ReportFailure, *, every: float = POLL_INTERVAL
) -> AsyncIterator[None]:
    """Forward what waits, now, when a letter is added and when a session begins to listen, until the block ends.

    It looks by itself *every* seconds. A disk that refuses ends nothing: the letters are where they were, and the next
    look tries again; *tell* hears of it once, and again when it is another failure or came back.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forward_forever, transport, tell, every)
        yield
        nursery.cancel_scope.cancel()


async def _forward_forever(transport: BridgeTransport, tell: ReportFailure, every: float) -> None:
    told: str | None = None
    with open_directory_watch() as notices:
        while True:
            try:
                # Watched before one looks, so that nothing comes in between unseen.
                await trio.to_thread.run_sync(_watch_sync, transport, notices)
                await transport.forward()
                told = None
            except MailboxFailed as exc:
                if str(exc) != told:
                    tell(exc)
                told = str(exc)
            with trio.move_on_after(every):
                await notices.wait()


def _watch_sync(transport: BridgeTransport, notices: DirectoryWatch) -> None:
    # Both are made if need be: what is not there when the first letter or session comes tells nothing of it.
    with contextlib.suppress(BridgeUnusable):  # then nobody can listen there
        notices.watch(make_directory(), "listening")
    notices.watch(transport.outgoing.create_directory_sync(), "made")
    for directory in transport.outgoing.directories_sync():
        notices.watch(directory, "moved")
