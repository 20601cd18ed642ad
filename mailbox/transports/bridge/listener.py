"""The listening end of a bridge: one socket per session."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Receipt, StoreDeadLetter
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import BridgeRefused, EnvelopeCorrupt, MailboxFailed, NameInvalid, NotAllowed, SendRefused
from coterie.mailbox.transports.bridge.accept_policy import AcceptPolicy, InboundRateLimiter
from coterie.mailbox.transports.bridge.held_mail import DIRECTORY, HeldMail
from coterie.mailbox.transports.bridge.protocol import VERSION, DeliveryReply, Hello, refusal_reply
from coterie.mailbox.transports.bridge.received_ids import (
    ReceivedIds,
    ReceivedRecord,
    content_digest,
    open_received_ids,
)
from coterie.mailbox.transports.bridge.socket_path import (
    BridgeUnusable,
    check_uid,
    hold_lock_file,
    make_directory,
    read_credentials,
    socket_path,
)

DeliverInbound = Callable[[Envelope], Awaitable[Receipt]]
"""Stores a letter in the session's own transport. The letter has no MAC: the session vouches for it, and signs it."""

RETRY_AFTER = 1.0
"""Seconds after which a sender may try again when storing failed."""


@attrs.define(eq=False)
class InboundMail:
    """Takes letters for one session, one after the other, so that order and the memory of repeats hold."""

    session: str
    deliver: DeliverInbound
    clock: Clock
    terms: AcceptPolicy
    held: HeldMail
    taken: ReceivedIds
    _rates: InboundRateLimiter = attrs.field(init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._rates = InboundRateLimiter(self.terms.per_minute, self.terms.burst)

    async def receive(self, envelope: Envelope, session: str) -> DeliveryReply:
        """Take *envelope*, which came from *session*, and say what became of it. Raises nothing planned.

        Cancelled, the letter is stored whole or not at all.
        """
        sender = attrs.evolve(envelope.sender, session=session, kind="peer")
        letter = attrs.evolve(envelope, sender=sender, mac=None)
        async with self._turn:
            try:
                return await self._accept(letter)
            except SendRefused as exc:
                return refusal_reply(self.session, exc)
            except (MailboxFailed, OSError) as exc:
                return self._delay_reply(str(exc), RETRY_AFTER)

    async def _accept(self, letter: Envelope) -> DeliveryReply:
        self._check(letter)
        now = self.clock.now()
        note = self.taken.find(letter, now=now, window=self.terms.repeat_window)
        if note is None:
            if wait := self._rates.spend((letter.sender.session, letter.sender.name), now):
                limit = f"{letter.sender.name!r} may send {self.terms.per_minute:g} messages a minute"
                return self._delay_reply(f"{limit}; try again in {wait:.1f} seconds", wait)
            note = await self._store(letter)
            self.taken.add(note)
        return DeliveryReply(outcome=note.outcome, session=self.session, id=note.id, stored=note.stored)

    def _check(self, letter: Envelope) -> None:
        check_name(letter.id)
        if letter.kind != "message":
            reason = "mail between sessions is text"
            raise NotAllowed(letter.sender.name, letter.recipient.name, letter.kind, reason)
        if self.terms.policy == "refuse":
            raise BridgeRefused(f"bridge:{self.session}", "it takes no mail from other sessions")

    async def _store(self, letter: Envelope) -> ReceivedRecord:
        if self.terms.policy == "hold":
            await self.held.hold(letter)
            return ReceivedRecord(id=letter.id, words=content_digest(letter), outcome="held", stored=self.clock.now())
        receipt = await self.deliver(letter)
        return ReceivedRecord(id=letter.id, words=content_digest(letter), outcome="accepted", stored=receipt.stored)

    def _delay_reply(self, reason: str, wait: float) -> DeliveryReply:
        return DeliveryReply(outcome="later", session=self.session, reason=reason, wait=wait)


RECEIVED_FILE = Path(DIRECTORY, "taken.jsonl")
"""Below the mail directory of a session."""

_QUEUE = 64
"""Connections that the kernel keeps for us until we take them."""


@contextlib.asynccontextmanager
async def open_bridge(
    session: str,
    mail: Path,
    deliver: DeliverInbound,
    *,
    clock: Clock,
    bury: StoreDeadLetter,
    terms: AcceptPolicy | None = None,
) -> AsyncIterator[Path]:
    """Take mail for *session*, whose mail directory is *mail*, until the block ends; gives the path of the socket.

    When it has been entered the socket can be connected to; when it has been left the socket is gone, and what was
    not answered will be sent again. Raises `BridgeUnusable` if another process listens for a session with this id, or
    the place of the sockets is not safe, and `OSError` if *mail* cannot be written to.
    """
    terms = terms or AcceptPolicy()
    held = HeldMail.of(mail, clock, bury, terms.held)
    with _bind_socket(session) as (path, sock), open_received_ids(mail / RECEIVED_FILE) as taken:
        await sock.bind(str(path))
        sock.listen(_QUEUE)
        # Afterwards: whoever forwards is told of it by the kernel, and connects. The directory keeps others out.
        path.chmod(0o600)
        inbound = InboundMail(session, deliver, clock, terms, held, taken)
        listener = _Listener(inbound, terms.patience, trio.Semaphore(terms.connections))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, listener.serve, [trio.SocketListener(sock)])
            yield path
            nursery.cancel_scope.cancel()


@contextlib.contextmanager
def _bind_socket(session: str) -> Iterator[tuple[Path, trio.socket.SocketType]]:
    """A free place for a socket, ours until the block ends. Who holds the claim lives, so what lies there is dead."""
    path = socket_path(session)
    make_directory()
    with hold_lock_file(path.with_suffix(".lock")) as is_ours:
        if not is_ours:
            raise BridgeUnusable(path, f"another process takes mail for a session {session!r}; end it first")
        path.unlink(missing_ok=True)
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            try:
                yield path, sock
            finally:
                path.unlink(missing_ok=True)


@attrs.define(eq=False)
class _Listener:
    """Serves connections: checks who is there, and answers."""

    inbound: InboundMail
    patience: float
    slots: trio.Semaphore

    async def serve(self, stream: trio.SocketStream) -> None:
        """Talk to whoever connected until it has no more to say."""
        async with stream, self.slots:
            # Whoever has gone, or does not read, is not told; its letters come again.
            with contextlib.suppress(trio.BrokenResourceError, trio.TooSlowError):
                await self._serve_messages(stream)

    async def _serve_messages(self, stream: trio.SocketStream) -> None:
        try:
            session = await self._handshake(stream)
            while (frame := await self._read(stream)) is not None:
                await self._send(stream, await self.inbound.receive(Envelope.from_bytes(frame), session))
        except (PeerInvalid, EnvelopeCorrupt, NameInvalid) as exc:
            await self._send(stream, DeliveryReply(outcome="refused", session=self.inbound.session, reason=str(exc)))

    async def _handshake(self, stream: trio.SocketStream) -> str:
        """The session on the other end, once it is welcome."""
        check_uid(read_credentials(stream))
        hello = Hello.from_bytes(await self._read(stream) or b"")
        if hello.v != VERSION:
            raise PeerInvalid(f"it speaks version {hello.v}, and this session {VERSION}")
        if check_name(hello.session) == self.inbound.session:
            raise PeerInvalid("it says that it is this session itself, and that has no need of a bridge")
        await self._send(stream, DeliveryReply(outcome="welcome", session=self.inbound.session))
        return hello.session

    async def _read(self, stream: trio.SocketStream) -> bytes | None:
        with trio.move_on_after(self.patience):
            return await read_frame(stream)
        raise PeerInvalid(f"no whole frame came in {self.patience:g} seconds")

    async def _send(self, stream: trio.SocketStream, answer: DeliveryReply) -> None:
        with trio.fail_after(self.patience):
            await write_frame(stream, answer.to_bytes())
