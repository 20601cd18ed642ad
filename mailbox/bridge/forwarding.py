"""Forwarding goes on by itself: woken by the kernel when a letter or a session comes, and by a slow look at last."""

import contextlib
from collections.abc import AsyncIterator, Callable

import trio

from coterie.mailbox.bridge.notices import Notices, open_notices
from coterie.mailbox.bridge.place import BridgeUnusable, make_directory
from coterie.mailbox.bridge.transport import BridgeTransport
from coterie.mailbox.errors import MailboxFailed

LOOK_EVERY = 2.0
"""Seconds between two looks at least: for sockets that are elsewhere, and for sessions that could not take all."""

Tell = Callable[[MailboxFailed], None]


@contextlib.asynccontextmanager
async def open_forwarding(transport: BridgeTransport, tell: Tell, *, every: float = LOOK_EVERY) -> AsyncIterator[None]:
    """Forward what waits, now, when a letter is added and when a session begins to listen, until the block ends.

    It looks by itself *every* seconds. A disk that refuses ends nothing: the letters are where they were, and the next
    look tries again; *tell* hears of it once, and again when it is another failure or came back.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep_forwarding, transport, tell, every)
        yield
        nursery.cancel_scope.cancel()


async def _keep_forwarding(transport: BridgeTransport, tell: Tell, every: float) -> None:
    told: str | None = None
    with open_notices() as notices:
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


def _watch_sync(transport: BridgeTransport, notices: Notices) -> None:
    # Both are made if need be: what is not there when the first letter or session comes tells nothing of it.
    with contextlib.suppress(BridgeUnusable):  # then nobody can listen there
        notices.watch(make_directory(), "listening")
    notices.watch(transport.outgoing.make_sync(), "made")
    for directory in transport.outgoing.directories_sync():
        notices.watch(directory, "moved")
