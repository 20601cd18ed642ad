"""Bridge transport: mail for other sessions, handed over at once or kept in the outbox."""

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie.clock import Clock
from coterie.framing import FRAME_LIMIT, PeerInvalid, read_frame, write_frame
from coterie.mailbox.address import OtherSession, Socket, check_name
from coterie.mailbox.contract import BridgeReceipt, BridgeState, MailLimits, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import BridgeRefused, MailboxError, MailboxFailed, MailboxFull, MessageTooLarge, NotAllowed
from coterie.mailbox.fault_points import delay, trigger
from coterie.mailbox.transports.bridge.outbox import Outbox
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.protocol import DeliveryReply, Hello, parse_refusal
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable, check_uid, read_credentials
from coterie.mailbox.transports.bridge.spool import Spool


@attrs.define(eq=False)
class PeerTimeout(MailboxError):
    """Nobody listens, or no answer came: whether a letter was taken is not known, so it must be sent again."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} does not answer: {self.reason}"


@attrs.define(eq=False)
class PeerConnection:
    """A connection on which the other session has said that we are welcome."""

    _address: str
    _stream: trio.SocketStream
    _patience: float

    async def send(self, envelope: Envelope) -> DeliveryReply:
        """What became of *envelope* there. Raises `PeerTimeout`; then, or cancelled, the line is of no more use."""
        name = envelope.recipient.name
        await delay("bridge", name)
        if trigger("drop", "bridge", name) is not None:
            raise PeerTimeout(self._address, "what was sent is lost")
        try:
            if trigger("duplicate", "bridge", name) is not None:
                await self._request(envelope.to_bytes())
            return await self._request(envelope.to_bytes())
        except PeerInvalid as exc:
            raise PeerTimeout(self._address, str(exc)) from exc

    async def handshake(self, session: str, expected: str | None) -> None:
        """Say that we are *session*. Raises `PeerTimeout`, and `BridgeRefused` if we are not welcome."""
        try:
            answer = await self._request(Hello(session=session).to_bytes())
        except PeerInvalid as exc:
            raise BridgeRefused(self._address, f"what listens there is no bridge: {exc}") from exc
        if answer.outcome != "welcome":
            raise BridgeRefused(self._address, answer.reason)
        if expected not in (None, answer.session):
            raise BridgeRefused(self._address, f"session {answer.session!r} listens there")

    async def _request(self, question: bytes) -> DeliveryReply:
        """Raises `PeerInvalid` for an answer that cannot be read, and `PeerTimeout` if there is none."""
        try:
            with trio.fail_after(self._patience):
                # One that refuses closes at once, and its words can be read although ours were not.
                with contextlib.suppress(trio.BrokenResourceError):
                    await write_frame(self._stream, question)
                frame = await read_frame(self._stream)
        except trio.TooSlowError as exc:
            raise PeerTimeout(self._address, f"nothing came in {self._patience:g} seconds") from exc
        except trio.BrokenResourceError as exc:
            raise PeerTimeout(self._address, "the connection broke") from exc
        if frame is None:
            raise PeerTimeout(self._address, "it closed the connection")
        return DeliveryReply.from_bytes(frame)


@contextlib.asynccontextmanager
async def open_connection(peer: Peer, *, session: str, patience: float) -> AsyncIterator[PeerConnection]:
    """A line from *session* to *peer*, which must answer within *patience* seconds, each time.

    Raises `PeerTimeout` if nobody listens, and `BridgeRefused` if it is somebody else or does not want us.
    """
    try:
        peer.check_socket()
        stream = await trio.open_unix_socket(peer.path)
    except BridgeUnusable as exc:
        raise BridgeRefused(peer.address, str(exc)) from exc
    except OSError as exc:
        raise PeerTimeout(peer.address, exc.strerror or str(exc)) from exc
    async with stream:
        try:
            check_uid(read_credentials(stream))
        except PeerInvalid as exc:
            raise BridgeRefused(peer.address, exc.reason) from exc
        line = PeerConnection(peer.address, stream, patience)
        await line.handshake(session, peer.session)
        yield line


KEEP = 7 * 24 * 3600.0
"""Seconds for which a letter waits at most for a session that does not come."""


@attrs.define(eq=False)
class BridgeTransport:
    """Sends for one session; several processes of it may each have one, over the same mail directory."""

    session: str
    mail: Path
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits = attrs.field(factory=lambda: MailLimits(messages=1_000))
    """How much may wait for one session, and how large a message may be."""
    keep: float = KEEP
    patience: float = 10.0
    """Seconds in which another session must answer."""
    _turns: defaultdict[Peer, trio.Lock] = attrs.field(factory=lambda: defaultdict(trio.Lock), init=False)
    outgoing: Outbox = attrs.field(init=False)
    """What waits here."""

    def __attrs_post_init__(self) -> None:
        self.outgoing = Outbox.of(self.mail, self.clock, self.store_dead_letter, self.limits)

    async def send(self, envelope: Envelope, address: Socket | OtherSession) -> BridgeReceipt:
        """Hand *envelope* to the session at *address*, or store it here, behind what waits for that session.

        Raises `SendRefused`: what the other session said, or why it may not go there; and `MailboxFailed` if it could
        be stored neither there nor here. Cancelled, it may have been taken there; sent again, it is known by its id.
        """
        peer = _peer_at(address)
        self._check(envelope, peer)
        async with self._turns[peer]:
            spool = self.outgoing.spool_of(peer)
            if not await trio.to_thread.run_sync(spool.files):
                with contextlib.suppress(PeerTimeout):
                    return await self._hand_over(peer, envelope)
            await trio.to_thread.run_sync(spool.put, envelope)
        return _receipt(envelope, "waiting", envelope.id, self.clock.now())

    async def forward(self) -> int:
        """Hand over what waits, in order, to every session that listens; the number of letters taken there.

        What is refused or has waited too long becomes a dead letter. What another process is forwarding is left to it.
        Raises `MailboxFailed` if the disk refused, after all sessions had their turn.
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

    def _check(self, envelope: Envelope, peer: Peer) -> None:
        for name in (envelope.id, envelope.sender.name, envelope.recipient.name):
            check_name(name)
        if envelope.kind != "message":
            raise NotAllowed(envelope.sender.name, peer.address, envelope.kind, "mail between sessions is text")
        if peer.session == self.session:
            raise BridgeRefused(peer.address, "that is this session itself; write to its agents by name")
        if (size := len(envelope.to_bytes())) > (limit := min(self.limits.message_bytes, FRAME_LIMIT)):
            raise MessageTooLarge(size, limit)

    async def _hand_over(self, peer: Peer, envelope: Envelope) -> BridgeReceipt:
        async with self._connect(peer) as line:
            answer = await line.send(envelope)
        if answer.is_received:
            stored = self.clock.now() if answer.stored is None else answer.stored
            state: BridgeState = "held" if answer.outcome == "held" else "accepted"
            return _receipt(envelope, state, answer.id or envelope.id, stored)
        raise parse_refusal(answer, peer.address)

    async def _forward_to(self, peer: Peer) -> int:
        spool = self.outgoing.spool_of(peer)
        with spool.try_lock() as is_ours:
            if not is_ours:
                return 0
            await trio.to_thread.run_sync(spool.dead_letter_expired, self.keep)
            # A session that is not there, or will not talk to us now, may later.
            with contextlib.suppress(PeerTimeout, BridgeRefused):
                async with self._connect(peer) as line:
                    return await _drain(line, spool, peer)
        return 0

    def _connect(self, peer: Peer) -> AbstractAsyncContextManager[PeerConnection]:
        return open_connection(peer, session=self.session, patience=self.patience)


async def _drain(line: PeerConnection, spool: Spool, peer: Peer) -> int:
    """Send what waits in *spool* until it is empty, or the other session cannot take more now; how many it took."""
    taken = 0
    while files := await trio.to_thread.run_sync(spool.files):
        for file in files:
            fate = await _forward_one(line, spool, peer, file)
            if fate == "waits":
                return taken
            taken += fate == "taken"
    return taken


async def _forward_one(line: PeerConnection, spool: Spool, peer: Peer, file: Path) -> Literal["taken", "gone", "waits"]:
    letter = await trio.to_thread.run_sync(spool.read, file)
    if letter is None:
        return "gone"
    try:
        answer = await line.send(letter)
    except PeerTimeout:
        return "waits"
    if answer.is_received:
        await trio.to_thread.run_sync(spool.remove, file)
        return "taken"
    refusal = parse_refusal(answer, peer.address)
    if answer.outcome == "later" or isinstance(refusal, MailboxFull):
        return "waits"
    await trio.to_thread.run_sync(spool.dead_letter, file, letter, "refused", str(refusal))
    return "gone"


def _peer_at(address: Socket | OtherSession) -> Peer:
    try:
        return Peer.at(address)
    except BridgeUnusable as exc:
        raise BridgeRefused(str(exc.path), exc.reason) from exc


def _receipt(envelope: Envelope, state: BridgeState, id_: MessageId, stored: float) -> BridgeReceipt:
    return BridgeReceipt(id=id_, recipient=envelope.recipient.name, transport="bridge", stored=stored, state=state)
