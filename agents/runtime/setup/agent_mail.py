"""Mail of the agents of one process: their inboxes, and delivery between them without files."""

from collections.abc import AsyncIterator, Callable, Collection, Container, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Literal

import attrs
import trio

from coterie.agents.events.agent_events import Event, Noticed
from coterie.agents.events.event_log import discard_event
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.contract import Backlog, DeadLetter, Inbox, Receipt, Transport
from coterie.mailbox.envelope import Envelope, MessageId, Sender
from coterie.mailbox.errors import MailboxBusy, MailboxError
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.router import AuthorityPort, Router
from coterie.mailbox.transports.in_process.transport import QueueTransport
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.mailbox.validation import MessageDigest
from coterie.session_directory import MAIN, SessionDirectory

HAND_OVER_TIMEOUT = 5.0
"""Seconds for moving unread messages of an ending agent into files."""


@attrs.frozen(kw_only=True)
class InProcessTransport:
    """A `Transport` between the agents of one process: by queue, unless a message must be in a file.

    A report must survive the process, and a message must not overtake an earlier one that is in a file.
    """

    queue: QueueTransport
    files: Transport
    residents: set[str] = attrs.field(factory=set)
    """Names of the agents that have a mailbox in the queue."""

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
            self.queue.store_dead_letter(letter)


@attrs.frozen(kw_only=True)
class AgentMail:
    """Mail of the session, as one incarnation of an agent uses it."""

    messaging: Messaging
    router: Router
    sender: Sender
    _queue: QueueTransport

    async def accept(self, envelope: Envelope) -> None:
        """Deliver a message that the agent trusts, because it came from the root. Raises `SendRefused`."""
        await self._queue.send(envelope)

    @property
    def sent_in_process(self) -> int:
        """Number of messages that agents of this process have sent each other without a file."""
        return self._queue.sent

    @property
    def is_delivered_in_process(self) -> bool:
        """True if no message in the queue has still to wake another agent of this process."""
        others = self.router.local_names - {self.sender.name}
        return not any(map(self._queue.needs_turn, others))


@attrs.frozen(kw_only=True)
class ProcessMail:
    """Mail of the session for all agents of one process. Made by `open_process_mail`."""

    session_mail: SessionMail
    in_process: InProcessTransport
    router: Router

    @asynccontextmanager
    async def open(
        self,
        seen: Container[MessageId],
        *,
        name: str,
        incarnation: int,
        believed: Collection[MessageDigest] = (),
        authority: AuthorityPort | None = None,
    ) -> AsyncIterator[AgentMail]:
        """Let one start of the agent *name* get and send mail until the block ends; *seen* is what its transcript has.

        By *authority* it sends what makes others act. Messages in *believed* need no MAC, see `snapshot_pending`. The
        root has put the agent on the roster. Unread messages of agents in this process are in its mailbox files when
        the block is left. Raises `ConfigInvalid` if another process is the agent's, or if its mail cannot be opened.
        """
        office, session = self.session_mail, self.session_mail.session
        office.files.trusted[name] = frozenset(believed)
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
            letterbox = MergedInbox(name, local, (far,), office.dead_letters.add, office.clock)
            # One of its own: the root knows by the socket of this agent who it is.
            router = attrs.evolve(self.router, authority=authority)
            yield AgentMail(messaging=Messaging(letterbox), router=router, sender=sender, queue=self.in_process.queue)

    @asynccontextmanager
    async def _open_queue(self, seen: Container[MessageId], name: str, incarnation: int) -> AsyncIterator[Inbox]:
        is_resident = False
        try:
            async with self.in_process.open_inbox(name, incarnation, seen=seen) as inbox:
                self.in_process.residents.add(name)
                is_resident = True
                yield inbox
        finally:
            if is_resident:
                # Before it is out of reach for the others, so that none of their next messages comes first.
                with trio.move_on_after(HAND_OVER_TIMEOUT, shield=True):
                    await self.in_process.hand_over(name, incarnation)
                self.in_process.residents.remove(name)


@contextmanager
def open_process_mail(
    session: SessionDirectory,
    clock: Clock,
    keys: SessionKeys | None = None,
    tell: Callable[[Event], None] = discard_event,
) -> Iterator[ProcessMail]:
    """Let the agents of this process get and send mail until the block ends, signed with *keys*, if there are any.

    *tell* gets an event for each message that its sender did not sign.
    """

    def report(letter: DeadLetter) -> None:
        tell(Noticed.untrusted_mail(letter.mailbox, letter.detail))

    with SessionMail.open(session, clock, keys, on_untrusted=report) as office:
        queue = QueueTransport(office.roster, None, clock, office.dead_letters.add)
        near = InProcessTransport(queue=queue, files=office.files)
        # The router sees each change of the residents, as it has the same set.
        yield ProcessMail(session_mail=office, in_process=near, router=office.router(near, near.residents))
