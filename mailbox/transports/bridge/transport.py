"""Bridge transport: mail for other sessions, handed over at once or kept in the outbox."""

import contextlib
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

import attrs
import trio

from coterie.clock import Clock
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.address import OtherSession, Socket, check_name
from coterie.mailbox.contract import BridgeReceipt, BridgeState, MailLimits, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import BridgeRefused, MailboxFailed, MailboxFull, MessageTooLarge, NotAllowed
from coterie.mailbox.transports.bridge.client import PeerConnection, PeerTimeout, open_connection
from coterie.mailbox.transports.bridge.outbox import Outbox
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.protocol import parse_refusal
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable
from coterie.mailbox.transports.bridge.spool import Spool

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
