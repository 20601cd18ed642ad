"""Bridge transport: sends mail to other sessions, or keeps it in the outbox until they listen."""

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.directory_watch import DirectoryWatch, open_directory_watch
from coterie.framing import FRAME_LIMIT, PeerInvalid, read_frame, write_frame
from coterie.mailbox.address import OtherSession, Socket, check_name
from coterie.mailbox.contract import BridgeReceipt, BridgeState, MailLimits, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import BridgeRefused, MailboxError, MailboxFailed, MailboxFull, MessageTooLarge, NotAllowed
from coterie.mailbox.fault_points import trigger
from coterie.mailbox.transports.bridge.outbox import DIRECTORY, Outbox
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.protocol import DeliveryReply, Hello, parse_refusal
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, check_uid, make_directory, read_credentials
from coterie.mailbox.transports.bridge.spool import Spool


@attrs.define(eq=False)
class PeerTimeout(MailboxError):
    """The other session does not listen, or sends no valid reply. A message that it may have got must be sent again."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} does not answer: {self.reason}"


@attrs.define(eq=False)
class PeerConnection:
    """Connection to another session after a successful handshake."""

    _address: str
    _stream: trio.SocketStream
    _patience: float

    async def send(self, envelope: Envelope) -> DeliveryReply:
        """Send *envelope* and return the reply. After `PeerTimeout` or a cancellation the connection must be closed."""
        name = envelope.recipient.name
        if (seconds := trigger("delay", "bridge", name)) is not None:
            await trio.sleep(seconds)
        if trigger("drop", "bridge", name) is not None:
            raise PeerTimeout(self._address, "an injected fault dropped the message; send it again")
        try:
            if trigger("duplicate", "bridge", name) is not None:
                await self._request(envelope.to_bytes())
            return await self._request(envelope.to_bytes())
        except PeerInvalid as exc:
            raise PeerTimeout(self._address, str(exc)) from exc

    async def handshake(self, session: str, expected: str | None) -> None:
        """Introduce this side as *session*. Raises `PeerTimeout`, and `BridgeRefused` if the other side rejects it.

        Also raises `BridgeRefused` if the id of the other session is not *expected* (None: any id).
        """
        try:
            answer = await self._request(Hello(session=session).to_bytes())
        except PeerInvalid as exc:
            raise BridgeRefused(
                self._address, f"the listening process is no session; check the address: {exc}"
            ) from exc
        if answer.outcome != "welcome":
            raise BridgeRefused(self._address, answer.reason)
        if expected not in (None, answer.session):
            raise BridgeRefused(self._address, f"session {answer.session!r} has this address; check the address")

    async def _request(self, request: bytes) -> DeliveryReply:
        """Send one frame and return the reply. Raises `PeerInvalid` for an invalid reply, `PeerTimeout` without one."""
        try:
            with trio.fail_after(self._patience):
                # A peer that refuses closes immediately; its reply can be read although the write failed.
                with contextlib.suppress(trio.BrokenResourceError):
                    await write_frame(self._stream, request)
                frame = await read_frame(self._stream)
        except trio.TooSlowError as exc:
            raise PeerTimeout(self._address, f"no reply of the other session in {self._patience:g} s; retry") from exc
        except trio.BrokenResourceError as exc:
            raise PeerTimeout(self._address, "the connection to the other session broke; try again") from exc
        if frame is None:
            raise PeerTimeout(self._address, "the other session closed the connection; try again")
        return DeliveryReply.from_bytes(frame)


@contextlib.asynccontextmanager
async def open_connection(peer: Peer, *, session: str, patience: float) -> AsyncIterator[PeerConnection]:
    """Connect *session* to *peer*, which must send each reply within *patience* seconds.

    Raises `PeerTimeout` without a listener or reply, `BridgeRefused` for an unsafe socket, wrong session or rejection.
    """
    try:
        peer.check_socket()
        stream = await trio.open_unix_socket(peer.path)
    except BridgeUnusable as exc:
        raise BridgeRefused(peer.address, str(exc)) from exc
    except OSError as exc:
        raise PeerTimeout(peer.address, f"cannot connect to the other session: {exc.strerror or exc}") from exc
    async with stream:
        try:
            check_uid(read_credentials(stream))
        except PeerInvalid as exc:
            raise BridgeRefused(peer.address, exc.reason) from exc
        connection = PeerConnection(peer.address, stream, patience)
        await connection.handshake(session, peer.session)
        yield connection


@attrs.define(eq=False)
class BridgeTransport:
    """Sends messages of one session to other sessions. Several processes may use the same mail directory *mail*."""

    session: str
    mail: Path
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits = attrs.field(factory=lambda: MailLimits(messages=1_000))
    """Limits of the mail that waits in the outbox for one other session, and of the size of one message."""
    keep: float = 7 * 24 * 3600.0
    """Seconds after its creation at which an undelivered message in the outbox expires."""
    patience: float = 10.0
    """Seconds within which another session must reply."""
    _turns: defaultdict[Peer, trio.Lock] = attrs.field(factory=lambda: defaultdict(trio.Lock), init=False)
    outgoing: Outbox = attrs.field(init=False)
    """Messages that wait for other sessions."""

    def __attrs_post_init__(self) -> None:
        self.outgoing = Outbox(self.mail / DIRECTORY, self.clock, self.store_dead_letter, self.limits)

    async def send(self, envelope: Envelope, address: Socket | OtherSession) -> BridgeReceipt:
        """Send *envelope* to the session at *address*.

        If that session does not reply, or earlier mail for it is waiting, store the message in the outbox. Raises
        `SendRefused` if the message is rejected here or by the other session, and `MailboxFailed` if the outbox could
        not store it. After a cancellation it may have been received. The other session drops a retry by its id.
        """
        try:
            peer = Peer.at(address)
        except BridgeUnusable as exc:
            raise BridgeRefused(str(exc.path), exc.reason) from exc
        for name in (envelope.id, envelope.sender.name, envelope.recipient.name):
            check_name(name)
        if envelope.kind != "message":
            raise NotAllowed(envelope.sender.name, peer.address, envelope.kind, "send plain text to other sessions")
        if peer.session == self.session:
            raise BridgeRefused(peer.address, "the address is that of this session; address its agents by name")
        if (size := len(envelope.to_bytes())) > (limit := min(self.limits.message_bytes, FRAME_LIMIT)):
            raise MessageTooLarge(size, limit)
        async with self._turns[peer]:
            spool = self.outgoing.spool_of(peer)
            if not await trio.to_thread.run_sync(spool.files):
                with contextlib.suppress(PeerTimeout):
                    return await self._hand_over(peer, envelope)
            await trio.to_thread.run_sync(spool.put, envelope)
        return _receipt(envelope, "waiting", envelope.id, self.clock.now())

    async def forward(self) -> int:
        """Send the mail in the outbox, in order, to every session that listens. Return the number of messages received.

        Expired and permanently refused messages become dead letters. Mail that another process forwards is skipped.
        Raises `MailboxFailed` on a disk error, after all sessions were tried.
        """
        taken: list[int] = []
        failures: list[MailboxFailed] = []

        async def forward_to(peer: Peer) -> None:
            try:
                taken.append(await self._forward_to(peer))
            except MailboxFailed as exc:
                failures.append(exc)

        peers = await trio.to_thread.run_sync(self.outgoing.peers_sync)
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(forward_to, peer)
        if failures:
            raise failures[0]
        return sum(taken)

    async def _hand_over(self, peer: Peer, envelope: Envelope) -> BridgeReceipt:
        async with self._connect(peer) as connection:
            answer = await connection.send(envelope)
        if answer.is_received:
            stored = self.clock.now() if answer.stored is None else answer.stored
            state: BridgeState = "held" if answer.outcome == "held" else "accepted"
            return _receipt(envelope, state, answer.id or envelope.id, stored)
        raise parse_refusal(answer, peer.address)

    async def _forward_to(self, peer: Peer) -> int:
        spool = self.outgoing.spool_of(peer)
        with spool.try_lock() as is_locked:
            if not is_locked:
                return 0
            await trio.to_thread.run_sync(spool.dead_letter_expired, self.keep)
            # A session that is down, or rejects us now, may accept mail later.
            with contextlib.suppress(PeerTimeout, BridgeRefused):
                async with self._connect(peer) as connection:
                    return await _drain(connection, spool, peer)
        return 0

    def _connect(self, peer: Peer) -> AbstractAsyncContextManager[PeerConnection]:
        return open_connection(peer, session=self.session, patience=self.patience)


async def _drain(connection: PeerConnection, spool: Spool, peer: Peer) -> int:
    """Send the messages in *spool* to *peer* until all are sent or the peer accepts no more now.

    Return the number of messages that the peer received. A message that it refuses for good becomes a dead letter.
    """
    taken = 0
    while files := await trio.to_thread.run_sync(spool.files):
        for file in files:
            envelope = await trio.to_thread.run_sync(spool.read, file)
            if envelope is None:
                continue
            try:
                answer = await connection.send(envelope)
            except PeerTimeout:
                return taken
            if answer.is_received:
                await trio.to_thread.run_sync(spool.remove, file)
                taken += 1
                continue
            refusal = parse_refusal(answer, peer.address)
            if answer.outcome == "later" or isinstance(refusal, MailboxFull):
                return taken
            await trio.to_thread.run_sync(spool.dead_letter, file, envelope, "refused", str(refusal))
    return taken


def _receipt(envelope: Envelope, state: BridgeState, id_: MessageId, stored: float) -> BridgeReceipt:
    return BridgeReceipt(id=id_, recipient=envelope.recipient.name, transport="bridge", stored=stored, state=state)


POLL_INTERVAL = 2.0
"""Seconds between attempts to forward mail; between them, only new mail or a new session socket causes an attempt."""

ReportFailure = Callable[[MailboxFailed], None]


@contextlib.asynccontextmanager
async def open_forwarder(
    transport: BridgeTransport, report: ReportFailure, *, every: float = POLL_INTERVAL
) -> AsyncIterator[None]:
    """Forward mail in the outbox until the block ends.

    It is forwarded now, when a message is added, when a session starts to listen, and at intervals of *every* seconds.
    After a disk error the messages stay in the outbox until the next attempt. *report* is called with a disk error,
    except if the last attempt failed with the same text.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forward_forever, transport, report, every)
        yield
        nursery.cancel_scope.cancel()


async def _forward_forever(transport: BridgeTransport, report: ReportFailure, every: float) -> None:
    last_reported: str | None = None
    with open_directory_watch() as watch:
        while True:
            try:
                # Watch before forwarding, so that no change in between is missed.
                await trio.to_thread.run_sync(_watch_sync, transport, watch)
                await transport.forward()
                last_reported = None
            except MailboxFailed as exc:
                if str(exc) != last_reported:
                    report(exc)
                last_reported = str(exc)
            with trio.move_on_after(every):
                await watch.wait()


def _watch_sync(transport: BridgeTransport, watch: DirectoryWatch) -> None:
    # Both directories are created if missing, because inotify cannot watch a missing directory.
    with contextlib.suppress(BridgeUnusable):  # then no session can listen there
        watch.watch(make_directory(), "listening")
    watch.watch(transport.outgoing.create_directory_sync(), "made")
    for directory in transport.outgoing.directories_sync():
        watch.watch(directory, "moved")
