"""Receiving end of the bridge (mail between sessions): a socket for each session, and the policy for incoming mail.

Received messages are remembered, so that no message is stored twice. The record of a message is written after the
message is stored. After a crash between these steps the message is sent again, and the transport drops it by its id.
"""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal

import attrs
import msgspec
import trio

from coterie.clock import Clock
from coterie.files import Appender, check_record, frame_record, replace_file
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import MailLimits, Receipt, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import BridgeRefused, EnvelopeCorrupt, MailboxFailed, NameInvalid, NotAllowed, SendRefused
from coterie.mailbox.transports.bridge.held_mail import DIRECTORY, HeldMail
from coterie.mailbox.transports.bridge.protocol import VERSION, DeliveryReply, Hello, refusal_reply
from coterie.mailbox.transports.bridge.socket_path import (
    BridgeUnusable,
    check_uid,
    hold_lock_file,
    make_directory,
    read_credentials,
    socket_path,
)

DeliverInbound = Callable[[Envelope], Awaitable[Receipt]]
"""Function that signs a message of another session, which has no MAC, and stores it in the mailbox of its recipient."""

RETRY_AFTER = 1.0
"""Seconds to wait before a retry, in the reply to a sender whose message could not be stored."""


InboundPolicy = Literal["accept", "hold", "refuse"]
"""Policy for messages of other sessions: store them in the recipient's mailbox, hold them for the user, or reject."""


@attrs.frozen(kw_only=True)
class AcceptPolicy:
    """Policy and limits for the mail that one session receives from other sessions of the same user."""

    policy: InboundPolicy = "hold"
    per_minute: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Greatest number of messages of one sender per minute, on average."""
    burst: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """Greatest number of messages that one sender may send in quick succession."""
    repeat_window: float = 60.0
    """Seconds in which a message with equal sender, recipient, answered message and text is dropped; 0: never."""
    held: MailLimits = attrs.field(factory=lambda: MailLimits(messages=1_000))
    """Limits of the mail that waits for the user."""
    patience: float = 10.0
    """Timeout in seconds for receiving one message or sending one reply; then the connection is closed."""
    connections: int = 64
    """Number of connections served at the same time. Further connections wait."""


@attrs.define(eq=False)
class InboundRateLimiter:
    """Limits the rate of messages of each sender with a token bucket."""

    _per_minute: float
    _burst: int
    _buckets: dict[tuple[str, str], tuple[float, float]] = attrs.field(factory=dict, init=False)
    """Maps a sender (session, name) to its number of tokens and the time of that count."""

    def spend(self, sender: tuple[str, str], now: float) -> float:
        """Remove one token of *sender* for a message at time *now*, and return 0.

        If there is no token, return the number of seconds until there is one.
        """
        if len(self._buckets) > 1_000:
            # Full buckets are dropped, so that only recent senders have one.
            full = [known for known in self._buckets if self._tokens(known, now) >= self._burst]
            for known in full:
                del self._buckets[known]
        tokens = self._tokens(sender, now)
        if tokens < 1:
            return (1 - tokens) * 60 / self._per_minute
        self._buckets[sender] = (tokens - 1, now)
        return 0.0

    def _tokens(self, sender: tuple[str, str], now: float) -> float:
        tokens, counted = self._buckets.get(sender, (float(self._burst), now))
        # If the clock was set back, no tokens are added or removed.
        return min(float(self._burst), tokens + max(0.0, now - counted) * self._per_minute / 60)


REMEMBERED = 10_000
"""Number of received messages to remember. A session sends one message at a time, so only its last can be repeated."""


@attrs.frozen(kw_only=True)
class ReceivedRecord:
    """Record of a message that was received from another session, with the outcome and time in the reply to it."""

    id: MessageId
    words: str
    """Result of `content_digest`, equal for messages with equal sender, recipient, answered message and text."""
    outcome: Literal["accepted", "held"]
    stored: float


@attrs.define(eq=False)
class ReceivedIds:
    """Records of the messages that a session has received from other sessions, used to detect repeated messages.

    They are kept in memory and in a file of checksummed lines, to which only this process writes.
    """

    _log: Appender
    _by_id: dict[MessageId, ReceivedRecord]
    _by_content: dict[str, ReceivedRecord] = attrs.field(factory=dict, init=False)
    """Maps a result of `content_digest` to the record of the last message with this content."""

    def __attrs_post_init__(self) -> None:
        self._by_content.update((record.words, record) for record in self._by_id.values())

    def find(self, envelope: Envelope, *, now: float, window: float) -> ReceivedRecord | None:
        """Return the record of this message, or of an equal message received in the *window* seconds before *now*.

        None if there is neither.
        """
        if (record := self._by_id.get(envelope.id)) is not None:
            return record
        record = self._by_content.get(content_digest(envelope))
        # A time in the future comes from a clock that was set back; a duplicate is better than a lost message.
        return record if record is not None and now - window < record.stored <= now else None

    def add(self, record: ReceivedRecord) -> None:
        """Append *record* to the file and to memory, where the oldest records are dropped. Raises `OSError`."""
        self._log.append(frame_record(msgspec.json.encode(record)))
        self._by_id[record.id] = self._by_content[record.words] = record
        while len(self._by_id) > REMEMBERED:
            oldest = self._by_id.pop(next(iter(self._by_id)))
            if self._by_content.get(oldest.words) is oldest:
                del self._by_content[oldest.words]


@contextlib.contextmanager
def open_received_ids(path: Path) -> Iterator[ReceivedIds]:
    """Open the records in the file *path* until the block ends, without the oldest if there are too many.

    Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    records = _read_records(path)
    if len(records) > REMEMBERED:
        records = dict(list(records.items())[-REMEMBERED:])
        content = b"".join(frame_record(msgspec.json.encode(record)) for record in records.values())
        replace_file(path, content, mode=0o600)
    with Appender.open(path) as log:
        yield ReceivedIds(log, records)


def content_digest(envelope: Envelope) -> str:
    """Return a digest of sender, recipient, answered message and text, which is equal for a repeated message."""
    sender = envelope.sender
    content = (sender.session, sender.name, envelope.recipient.name, envelope.in_reply_to, envelope.body)
    return hashlib.blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()


def _read_records(path: Path) -> dict[MessageId, ReceivedRecord]:
    records: dict[MessageId, ReceivedRecord] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            check_record(line)
            record = msgspec.json.decode(line, type=ReceivedRecord)
        except ValueError:
            # An empty line or a torn record. The message of a torn record is stored, and the transport knows its id.
            continue
        records[record.id] = record
    return records


@attrs.define(eq=False)
class InboundMail:
    """Stores the messages of other sessions for one session, one at a time, in order and without repeats."""

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
        """Store, hold or reject *envelope*, which came from *session*, and return the reply for that session.

        Rejections and disk errors become replies. Cancellation stores the message whole or not at all.
        """
        sender = attrs.evolve(envelope.sender, session=session, kind="peer")
        envelope = attrs.evolve(envelope, sender=sender, mac=None)
        async with self._turn:
            try:
                return await self._accept(envelope)
            except SendRefused as exc:
                return refusal_reply(self.session, exc)
            except (MailboxFailed, OSError) as exc:
                return self._delay_reply(str(exc), RETRY_AFTER)

    async def _accept(self, envelope: Envelope) -> DeliveryReply:
        check_name(envelope.id)
        if envelope.kind != "message":
            reason = "other sessions accept only plain text; send a text"
            raise NotAllowed(envelope.sender.name, envelope.recipient.name, envelope.kind, reason)
        if self.terms.policy == "refuse":
            raise BridgeRefused(f"bridge:{self.session}", "the session takes no mail from other sessions; do not retry")
        now = self.clock.now()
        record = self.taken.find(envelope, now=now, window=self.terms.repeat_window)
        if record is None:
            if wait := self._rates.spend((envelope.sender.session, envelope.sender.name), now):
                limit = f"{envelope.sender.name!r} may send {self.terms.per_minute:g} messages a minute"
                return self._delay_reply(f"{limit}; try again in {wait:.1f} seconds", wait)
            is_held = self.terms.policy == "hold"
            if is_held:
                await self.held.hold(envelope)
            stored = self.clock.now() if is_held else (await self.deliver(envelope)).stored
            outcome: Literal["accepted", "held"] = "held" if is_held else "accepted"
            words = content_digest(envelope)
            record = ReceivedRecord(id=envelope.id, words=words, outcome=outcome, stored=stored)
            self.taken.add(record)
        return DeliveryReply(outcome=record.outcome, session=self.session, id=record.id, stored=record.stored)

    def _delay_reply(self, reason: str, wait: float) -> DeliveryReply:
        return DeliveryReply(outcome="later", session=self.session, reason=reason, wait=wait)


RECEIVED_FILE = Path(DIRECTORY, "taken.jsonl")
"""Path of the file with the records of received messages, below the mail directory of a session."""

_QUEUE = 64
"""Number of connections that the kernel queues until they are accepted."""


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
    """Receive mail of other sessions for *session* until the block ends. Yield the path of the socket.

    *deliver* stores an accepted message, and *bury* stores a dead letter. The socket accepts connections when the block
    begins, and is removed when the block ends; senders repeat messages that got no reply. Raises `BridgeUnusable` if
    another process listens for a session with this id, or if other users can write to the directory of the sockets.
    Raises `OSError` if *mail*, the mail directory of the session, cannot be written to.
    """
    terms = terms or AcceptPolicy()
    held = HeldMail.of(mail, clock, bury, terms.held)
    with _bind_socket(session) as (path, sock), open_received_ids(mail / RECEIVED_FILE) as taken:
        await sock.bind(str(path))
        sock.listen(_QUEUE)
        # After listening, because forwarders watch for this change and connect. The directory keeps other users out.
        path.chmod(0o600)
        inbound = InboundMail(session, deliver, clock, terms, held, taken)
        listener = _Listener(inbound, terms.patience, trio.Semaphore(terms.connections))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, listener.serve, [trio.SocketListener(sock)])
            yield path
            nursery.cancel_scope.cancel()


@contextlib.contextmanager
def _bind_socket(session: str) -> Iterator[tuple[Path, trio.socket.SocketType]]:
    """Lock the socket path until the block ends; yield it with an unbound socket. Deletes a stale socket file."""
    path = socket_path(session)
    make_directory()
    with hold_lock_file(path.with_suffix(".lock")) as is_locked:
        if not is_locked:
            raise BridgeUnusable(path, f"another process receives mail for session {session!r}; stop it first")
        path.unlink(missing_ok=True)
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            try:
                yield path, sock
            finally:
                path.unlink(missing_ok=True)


@attrs.define(eq=False)
class _Listener:
    """Serves the connections of other sessions: checks the connecting process, and replies to each message."""

    inbound: InboundMail
    patience: float
    slots: trio.Semaphore

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until the peer closes it, sends invalid bytes, or is silent for `patience` seconds."""
        async with stream, self.slots:
            # The peer disconnected or timed out; it will resend.
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
        """Check the connecting process, welcome it, and return its session id. Raises `PeerInvalid`, `NameInvalid`."""
        check_uid(read_credentials(stream))
        hello = Hello.from_bytes(await self._read(stream) or b"")
        if hello.v != VERSION:
            raise PeerInvalid(f"the sender has protocol version {hello.v}, not {VERSION}; use one version of Coterie")
        if check_name(hello.session) == self.inbound.session:
            raise PeerInvalid("the sender has the id of this session; address agents of the same session by name")
        await self._send(stream, DeliveryReply(outcome="welcome", session=self.inbound.session))
        return hello.session

    async def _read(self, stream: trio.SocketStream) -> bytes | None:
        with trio.move_on_after(self.patience):
            return await read_frame(stream)
        raise PeerInvalid(f"the other session sent no complete message in {self.patience:g} seconds; send it again")

    async def _send(self, stream: trio.SocketStream, answer: DeliveryReply) -> None:
        with trio.fail_after(self.patience):
            await write_frame(stream, answer.to_bytes())
