"""The mail of the agents of one process, open for as long as each of them runs: its mailbox, and its way to send."""

from collections.abc import AsyncIterator, Callable, Collection, Container, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Literal

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Event
from coterie.agents.layers.mail import DeliverMail
from coterie.clock import Clock
from coterie.mailbox.contract import Backlog, DeadLetter, Inbox, Receipt, Transport
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import MailboxBusy, MailboxError
from coterie.mailbox.ids import MessageId
from coterie.mailbox.letterbox import Letterbox
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.router import AuthorityPort, Router
from coterie.mailbox.screen import Digest
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session

HANDING_OVER = 5.0
"""Seconds that it may take to put into files what an agent that ends has not read."""


@attrs.frozen(kw_only=True)
class NearTransport:
    """A `Transport` between the agents of one process: by queue, unless a message must be in a file.

    That is what the process must not take with it, and what would else overtake an earlier message that is in a file.
    """

    queue: QueueTransport
    files: Transport
    residents: set[str] = attrs.field(factory=set)
    """Who has a mailbox in the queue."""

    async def send(self, envelope: Envelope) -> Receipt:
        """As `Transport.send`."""
        if envelope.kind in AUTHORITY:
            return await self.queue.send(envelope)
        name = envelope.recipient.name
        if envelope.kind == "task_notification" or self.files.backlog(name).messages:
            return await self.files.send(envelope)
        receipt = await self.queue.send(envelope)
        if name not in self.residents:  # it has left in between
            await self.hand_over(name, envelope.recipient.incarnation or 0)
        return receipt

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """As `Transport.open_inbox`, for what comes by queue."""
        return self.queue.open_inbox(name, incarnation, seen=seen)

    def backlog(self, name: str) -> Backlog:
        """As `Transport.backlog`, for what came by queue."""
        return self.queue.backlog(name)

    async def hand_over(self, name: str, incarnation: int) -> None:
        """Put into the files of *name* what waits in the queue, in its order; what they do not take is a dead letter.

        What carries authority was for the start that has ended, and is dropped. Raises `MailboxFailed` and `OSError`.
        """
        async with self.queue.open_inbox(name, incarnation) as inbox:
            while deliveries := inbox.take_nowait(1):
                [envelope] = [delivery.envelope for delivery in deliveries]
                if envelope.kind not in AUTHORITY:
                    await self._store(envelope)
                await inbox.acknowledge([envelope.id])

    async def _store(self, envelope: Envelope) -> None:
        try:
            await self.files.send(envelope)
        except MailboxError as exc:
            letter = DeadLetter(
                reason="refused",
                detail=str(exc),
                mailbox=envelope.recipient.name,
                at=self.queue.clock.now(),
                envelope=envelope,
                raw=envelope.to_bytes(),
            )
            self.queue.bury(letter)


@attrs.frozen(kw_only=True)
class Mailroom:
    """What one start of one agent has of the session's mail."""

    mail: DeliverMail
    router: Router
    sender: Sender
    _queue: QueueTransport

    async def take(self, envelope: Envelope) -> None:
        """Deliver what the agent is to believe, because of where it comes from. Raises `SendRefused`."""
        await self._queue.send(envelope)

    @property
    def sent_nearby(self) -> int:
        """How many messages agents of this process have ever sent each other without a file."""
        return self._queue.sent

    @property
    def is_read_nearby(self) -> bool:
        """Whether none of those has still to wake another agent of this process."""
        others = self.router.locals - {self.sender.name}
        return not any(map(self._queue.is_worth_a_turn, others))


@attrs.frozen(kw_only=True)
class Mailrooms:
    """The session's mail as one process has it, for all of its agents. Made by `open_mailrooms`."""

    office: PostOffice
    near: NearTransport
    router: Router

    @asynccontextmanager
    async def open(
        self,
        seen: Container[MessageId],
        *,
        name: str,
        incarnation: int,
        believed: Collection[Digest] = (),
        authority: AuthorityPort | None = None,
    ) -> AsyncIterator[Mailroom]:
        """Let one start of the agent *name* get and send mail until the block ends; *seen* is what its transcript has.

        By *authority* it sends what makes others act. What is *believed* needs no MAC, see `note_waiting`. The root has
        put the agent on the roster. What others of this process wrote to it, and it has not read, is in its files when
        the block is left. Raises `ConfigInvalid` if another process is the agent's, or if its mail cannot be opened.
        """
        office, session = self.office, self.office.session
        office.files.believed[name] = frozenset(believed)
        async with AsyncExitStack() as stack:
            try:
                far = await stack.enter_async_context(office.files.open_inbox(name, incarnation, seen=seen))
                local = await stack.enter_async_context(self._open_queue(seen, name, incarnation))
            except MailboxBusy as exc:
                raise ConfigInvalid("session", f"{session.id} is at work in another process") from exc
            except MailboxError as exc:
                raise ConfigInvalid(str(office.directory), str(exc)) from exc
            kind: Literal["lead", "peer"] = "lead" if name == MAIN else "peer"
            sender = Sender(name=name, incarnation=incarnation, session=session.id, kind=kind)
            letterbox = Letterbox(name, local, (far,), office.dead.bury, office.clock)
            # One of its own: the root knows by the socket of this agent who it is.
            router = attrs.evolve(self.router, authority=authority)
            yield Mailroom(mail=DeliverMail(letterbox), router=router, sender=sender, queue=self.near.queue)

    @asynccontextmanager
    async def _open_queue(self, seen: Container[MessageId], name: str, incarnation: int) -> AsyncIterator[Inbox]:
        is_resident = False
        try:
            async with self.near.open_inbox(name, incarnation, seen=seen) as inbox:
                self.near.residents.add(name)
                is_resident = True
                yield inbox
        finally:
            if is_resident:
                # Before it is out of reach for the others, so that none of their next messages comes first.
                with trio.move_on_after(HANDING_OVER, shield=True):
                    await self.near.hand_over(name, incarnation)
                self.near.residents.remove(name)


@contextmanager
def open_mailrooms(
    session: Session, clock: Clock, keys: SessionKeys | None = None, tell: Callable[[Event], None] | None = None
) -> Iterator[Mailrooms]:
    """Let the agents of this process get and send mail until the block ends, signed with *keys*, if there are any.

    *tell* hears of mail that is not believed.
    """
    with PostOffice.of(session, clock, keys, tell=tell) as office:
        queue = QueueTransport(office.roster, None, clock, office.dead.bury)
        near = NearTransport(queue=queue, files=office.files)
        router = office.router(near)
        # One set: whoever can be reached nearby.
        router.locals = near.residents
        yield Mailrooms(office=office, near=near, router=router)
