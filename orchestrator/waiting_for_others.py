"""A lead waits for mail as long as somebody is there who could write: until all it has started are at rest."""

import contextlib

import trio

from coterie.agents.errors import ControlLost
from coterie.agents.spawning import Spawner
from coterie.mailbox.errors import MailboxFailed
from coterie.orchestrator.mailroom import Mailroom


async def wait_for_mail_or_rest(room: Mailroom, spawner: Spawner) -> None:
    """Return when mail has come that is worth a turn, or asks to end, or when nobody is left who would send any.

    In the last case all that they sent before is stored. Raises as `DeliverMail.wait_for_work` does.
    """
    failure: MailboxFailed | None = None
    async with trio.open_nursery() as nursery:

        async def rest() -> None:
            with contextlib.suppress(ControlLost):  # whoever listens on the line finds out
                await _wait_for_rest(room, spawner)
                nursery.cancel_scope.cancel()

        nursery.start_soon(rest)
        try:
            await room.mail.wait_for_work()
        except MailboxFailed as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # raised out here, where it is not put into a group
        raise failure


async def _wait_for_rest(room: Mailroom, spawner: Spawner) -> None:
    """Return when the root finds everybody at rest, and nothing was on its way within this process meanwhile.

    Who shares the process has said that it works before its mail counts as read. So the root has heard it if that was
    before it was asked, and if nothing was sent since, nobody can have been woken.
    """
    while True:
        is_read, sent = room.is_read_nearby, room.sent_nearby
        await spawner.rest()
        if is_read and sent == room.sent_nearby:
            return
        await trio.lowlevel.checkpoint()
