"""The mailbox of a session's main agent, open for as long as the agent runs."""

from collections.abc import AsyncIterator, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Event, LayerFailed
from coterie.agents.layers.mail import DeliverMail
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxBusy, MailboxError
from coterie.mailbox.ids import MessageId
from coterie.mailbox.letterbox import Letterbox
from coterie.mailbox.queue import QueueTransport
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session

LEAVING = 5.0
"""Seconds that saying goodbye to the roster may take."""


@asynccontextmanager
async def open_mailroom(
    session: Session, clock: Clock, seen: Container[MessageId], tell: Callable[[Event], None]
) -> AsyncIterator[DeliverMail]:
    """Let others write to the main agent of *session* until the block ends; *seen* is the mail its transcript has.

    Raises `ConfigInvalid` if another process is at work on the session, or if its mail cannot be opened.
    """
    async with AsyncExitStack() as stack:
        office = stack.enter_context(PostOffice.of(session, clock))
        letterbox = await _open_letterbox(office, seen, stack)
        try:
            yield DeliverMail(letterbox)
        finally:
            await _leave(office, tell)


async def _open_letterbox(office: PostOffice, seen: Container[MessageId], stack: AsyncExitStack) -> Letterbox:
    tasks = QueueTransport(office.roster, None, office.clock, office.dead.bury)
    try:
        start = (await office.roster.join(MAIN)).incarnation
        near = await stack.enter_async_context(tasks.open_inbox(MAIN, start))
        far = await stack.enter_async_context(office.files.open_inbox(MAIN, start, seen=seen))
    except MailboxBusy as exc:
        raise ConfigInvalid("session", f"{office.session.id} is at work in another process") from exc
    except MailboxError as exc:
        raise ConfigInvalid(str(office.directory), str(exc)) from exc
    return Letterbox(MAIN, near, (far,), office.dead.bury, office.clock)


async def _leave(office: PostOffice, tell: Callable[[Event], None]) -> None:
    with trio.move_on_after(LEAVING, shield=True):
        try:
            await office.roster.set_state(MAIN, "ended")
        except MailboxError as exc:
            tell(LayerFailed(layer="mail", reason=str(exc)))
