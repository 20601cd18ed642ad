"""The mail of one agent, open for as long as the agent runs: its mailbox, and its way to send."""

from collections.abc import AsyncIterator, Callable, Container
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Event, LayerFailed
from coterie.agents.layers.mail import DeliverMail
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import MailboxBusy, MailboxError
from coterie.mailbox.ids import MessageId
from coterie.mailbox.letterbox import Letterbox
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.router import Router
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session

LEAVING = 5.0
"""Seconds that saying goodbye to the roster may take."""


@attrs.frozen(kw_only=True)
class Mailroom:
    """What one start of one agent has of the session's mail."""

    mail: DeliverMail
    router: Router
    sender: Sender
    _near: QueueTransport

    async def take(self, envelope: Envelope) -> None:
        """Deliver what the agent is to believe, because of where it comes from. Raises `SendRefused`."""
        await self._near.send(envelope)


@asynccontextmanager
async def open_mailroom(
    session: Session,
    clock: Clock,
    seen: Container[MessageId],
    tell: Callable[[Event], None],
    *,
    name: str = MAIN,
    incarnation: int | None = None,
) -> AsyncIterator[Mailroom]:
    """Let the agent *name* of *session* get and send mail until the block ends; *seen* is what its transcript has.

    Without an *incarnation* it puts itself on the roster, and leaves it in the end; whoever is started by the root was
    put there by it. Raises `ConfigInvalid` if another process is the agent's, or if its mail cannot be opened.
    """
    async with AsyncExitStack() as stack:
        office = stack.enter_context(PostOffice.of(session, clock))
        near = QueueTransport(office.roster, None, clock, office.dead.bury)
        try:
            start = incarnation or (await office.roster.join(name)).incarnation
            local = await stack.enter_async_context(near.open_inbox(name, start))
            far = await stack.enter_async_context(office.files.open_inbox(name, start, seen=seen))
        except MailboxBusy as exc:
            raise ConfigInvalid("session", f"{session.id} is at work in another process") from exc
        except MailboxError as exc:
            raise ConfigInvalid(str(office.directory), str(exc)) from exc
        router = office.router(near)
        router.locals.add(name)
        sender = Sender(name=name, incarnation=start, session=session.id, kind="lead" if name == MAIN else "peer")
        letterbox = Letterbox(name, local, (far,), office.dead.bury, clock)
        try:
            yield Mailroom(mail=DeliverMail(letterbox), router=router, sender=sender, near=near)
        finally:
            if incarnation is None:
                await _leave(office, name, tell)


async def _leave(office: PostOffice, name: str, tell: Callable[[Event], None]) -> None:
    with trio.move_on_after(LEAVING, shield=True):
        try:
            await office.roster.set_state(name, "ended")
        except MailboxError as exc:
            tell(LayerFailed(layer="mail", reason=str(exc)))
