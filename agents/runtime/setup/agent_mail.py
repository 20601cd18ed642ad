"""Mail of the agents of one process: their inboxes, and a queue for messages between them, without files."""

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
"""Maximum seconds for moving the unread queued messages of an ending agent into its mailbox files."""


@attrs.frozen(kw_only=True)
class InProcessTransport:
    """Mail transport between the agents of one process: by a queue in memory, unless a message must be in a file.

    Reports go to files, to survive the process, and so do messages behind unread messages in the recipient's files.
    """

    queue: QueueTransport
    files: Transport
    residents: set[str] = attrs.field(factory=set)
    """Names of the agents of this process that are running, so that their mail may go to the queue."""

    async def send(self, envelope: Envelope) -> Receipt:
        """Store *envelope* in the queue or the files of its recipient. Raises `SendRefused` and `MailboxFailed`."""
        if envelope.kind in AUTHORITY:
            return await self.queue.send(envelope)
        name = envelope.recipient.name
        if envelope.kind == "task_notification" or self.files.backlog(name).messages:
            return await self.files.send(envelope)
        receipt = await self.queue.send(envelope)
        if name not in self.residents:  # The recipient may have left during the send.
            await self.hand_over(name, envelope.recipient.incarnation or 0)
        return receipt

    def open_inbox(
        self, name: str, incarnation: int, *, seen: Container[MessageId] = ()
    ) -> AbstractAsyncContextManager[Inbox]:
        """Open the inbox of the queued messages for *name*, without those whose ids are in *seen*."""
        return self.queue.open_inbox(name, incarnation, seen=seen)

    def backlog(self, name: str) -> Backlog:
        """Return number and size of the unread messages for *name* in the queue, not of those in files."""
        return self.queue.backlog(name)

    async def hand_over(self, name: str, incarnation: int) -> None:
        """Move the queued messages for agent *name*, which ends or has ended, into its mailbox files, in order.

        Refused messages become dead letters (undeliverable). Shutdown requests and plan decisions were for the ended
        incarnation, and are dropped. Raises `MailboxFailed` and `OSError`.
        """
        async with self.queue.open_inbox(name, incarnation) as inbox:
            while deliveries := inbox.take_nowait(1):
                [envelope] = [delivery.envelope for delivery in deliveries]
                try:
                    if envelope.kind not in AUTHORITY:
                        await self.files.send(envelope)
                except MailboxError as exc:
                    letter = DeadLetter.of(envelope, "refused", str(exc), name, self.queue.clock.now())
                    self.queue.store_dead_letter(letter)
                await inbox.acknowledge([envelope.id])


@attrs.frozen(kw_only=True)
class AgentMail:
    """Mail of one incarnation (start) of an agent: its inbox, its router for sending, and its address as sender."""

    messaging: Messaging
    router: Router
    sender: Sender
    _queue: QueueTransport

    async def accept(self, envelope: Envelope) -> None:
        """Queue *envelope*, which the root sent to this agent on their connection, unsigned. Raises `SendRefused`."""
        await self._queue.send(envelope)

    @property
    def sent_in_process(self) -> int:
        """Number of messages that the agents of this process have sent to each other by the queue, without a file."""
        return self._queue.sent

    @property
    def is_delivered_in_process(self) -> bool:
        """True if no other agent of this process has an unread queued message that gives it work."""
        others = self.router.local_names - {self.sender.name}
        return not any(map(self._queue.needs_turn, others))


@attrs.frozen(kw_only=True)
class ProcessMail:
    """Mail of the session, as all agents of one process share it. Created by `open_process_mail`."""

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
        """Open the mail of one incarnation (start) of agent *name*, which the root has added to the roster.

        Messages with ids in *seen*, which its transcript has, are not delivered again. Messages with digests in
        *believed* need no signature, see `snapshot_pending`. Shutdown requests and plan decisions are sent through
        *authority*, the root. The end of the block moves unread queued messages into the mailbox files. Raises
        `ConfigInvalid` if another process runs the agent, or if its mail cannot be opened.
        """
        session_mail, session = self.session_mail, self.session_mail.session
        session_mail.files.trusted[name] = frozenset(believed)
        async with AsyncExitStack() as stack:
            try:
                files = await stack.enter_async_context(session_mail.files.open_inbox(name, incarnation, seen=seen))
                local = await stack.enter_async_context(self._open_queue(seen, name, incarnation))
            except MailboxBusy as exc:
                raise ConfigInvalid(
                    "session",
                    f"{session.id} is running in another process; watch it with `coterie attach {session.id}`",
                ) from exc
            except MailboxError as exc:
                raise ConfigInvalid(str(session_mail.directory), str(exc)) from exc
            kind: Literal["lead", "peer"] = "lead" if name == MAIN else "peer"
            sender = Sender(name=name, incarnation=incarnation, session=session.id, kind=kind)
            inbox = MergedInbox(name, local, (files,), session_mail.dead_letters.add, session_mail.clock)
            # Each agent has its own router, because the root identifies the agent by the socket of its authority port.
            router = attrs.evolve(self.router, authority=authority)
            yield AgentMail(messaging=Messaging(inbox), router=router, sender=sender, queue=self.in_process.queue)

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
                # The agent is removed only afterwards, so that no later message of another agent overtakes these.
                with trio.move_on_after(HAND_OVER_TIMEOUT, shield=True):
                    await self.in_process.hand_over(name, incarnation)
                self.in_process.residents.remove(name)


@contextmanager
def open_process_mail(
    session: SessionDirectory,
    clock: Clock,
    keys: SessionKeys | None = None,
    emit: Callable[[Event], None] = discard_event,
) -> Iterator[ProcessMail]:
    """Open the mail of *session* for all agents of this process, until the block ends.

    Mail is signed and checked with *keys*, if given. *emit* gets an event for each message without a valid signature.
    """

    def report(dead_letter: DeadLetter) -> None:
        emit(Noticed.untrusted_mail(dead_letter.mailbox, dead_letter.detail))

    with SessionMail.open(session, clock, keys, on_untrusted=report) as session_mail:
        queue = QueueTransport(session_mail.roster, None, clock, session_mail.dead_letters.add)
        in_process = InProcessTransport(queue=queue, files=session_mail.files)
        # The router shares the set of residents, so it sees every change.
        yield ProcessMail(
            session_mail=session_mail,
            in_process=in_process,
            router=session_mail.router(in_process, in_process.residents),
        )
