"""The outbox: mail for other sessions that do not listen yet."""

from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import Backlog, MailLimits, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxBusy, MailboxError, MailboxFailed
from coterie.mailbox.transports.bridge.peer import Peer
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable
from coterie.mailbox.transports.bridge.spool import Spool

DIRECTORY = "outgoing"
ANSWER_WITHIN = 1.0
"""Seconds after which a socket that takes no connection counts as nobody's."""


@attrs.define(eq=False)
class NotInOutbox(MailboxError):
    """No letter with this id waits for another session: it never did, or it has gone since."""

    id: str

    def __str__(self) -> str:
        return f"no letter {self.id!r} waits for another session"


@attrs.frozen(kw_only=True)
class OutboxQueue:
    """What waits for one session."""

    address: str
    is_listening: bool
    """Whether somebody takes connections there; then it goes at the next look of a process that forwards."""
    backlog: Backlog


@attrs.define(eq=False)
class Outbox:
    """The letters of one session for others; any process of the user may look and decide, the session need not run."""

    directory: Path
    _clock: Clock
    _store_dead_letter: StoreDeadLetter
    _limits: MailLimits = attrs.field(factory=MailLimits)
    _spools: dict[Peer, Spool] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(cls, mail: Path, clock: Clock, bury: StoreDeadLetter, limits: MailLimits) -> "Outbox":
        """What waits below *mail*, the mail directory of a session; *limits* are for each session it waits for."""
        return cls(mail / DIRECTORY, clock, bury, limits)

    async def queues(self) -> list[OutboxQueue]:
        """For whom something waits, and how much. Takes nothing. Raises `MailboxFailed`."""
        return [
            OutboxQueue(
                address=peer.address,
                is_listening=await _is_listening(peer),
                backlog=await trio.to_thread.run_sync(self.spool_of(peer).backlog),
            )
            for peer in await trio.to_thread.run_sync(self.peers_sync)
        ]

    async def messages(self) -> list[tuple[str, Envelope]]:
        """All that waits, with its address; for each in the order of sending. Takes nothing. Raises `MailboxFailed`."""

        def peek_sync() -> list[tuple[str, Envelope]]:
            spools = [self.spool_of(peer) for peer in self.peers_sync()]
            found = [(spool.mailbox, spool.peek(file)) for spool in spools for file in spool.files()]
            return [(address, letter) for address, letter in found if letter is not None]

        return await trio.to_thread.run_sync(peek_sync)

    async def drop(self, id_: MessageId) -> None:
        """Move the letter to the dead.

        Raises `NotInOutbox`, `MailboxBusy` while another process forwards it, for it may have been taken there already,
        and `MailboxFailed`. Cancelled, it is dropped or not.
        """
        await trio.to_thread.run_sync(self._drop_sync, id_)

    def peers_sync(self) -> list[Peer]:
        """For whom something waits. Raises `MailboxFailed`."""
        peers = [Peer.of_directory(directory.name) for directory in self.directories_sync()]
        return [peer for peer in peers if peer is not None and self.spool_of(peer).files()]

    def create_directory_sync(self) -> Path:
        """Its directory, made if it is not there. Raises `MailboxFailed`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise MailboxFailed(DIRECTORY, str(exc)) from exc
        return self.directory

    def directories_sync(self) -> list[Path]:
        """Where something has ever waited. Raises `MailboxFailed`."""
        try:
            return sorted(self.directory.glob("*/"))
        except OSError as exc:
            raise MailboxFailed(DIRECTORY, str(exc)) from exc

    def spool_of(self, peer: Peer) -> Spool:
        """Where letters wait for *peer*; it need not exist."""
        if peer not in self._spools:
            directory = self.directory / peer.directory
            self._spools[peer] = Spool(directory, peer.address, self._store_dead_letter, self._clock, self._limits)
        return self._spools[peer]

    def _drop_sync(self, id_: MessageId) -> None:
        for spool in (self.spool_of(peer) for peer in self.peers_sync()):
            if spool.find(id_) is not None:
                _drop_from(spool, id_)
                return
        raise NotInOutbox(id_)


def _drop_from(spool: Spool, id_: MessageId) -> None:
    with spool.try_lock() as is_ours:
        if not is_ours:
            raise MailboxBusy(spool.mailbox)
        # Found once more: it may have been forwarded before the claim was ours.
        file = spool.find(id_)
        letter = None if file is None else spool.read(file)
        if file is None or letter is None:
            raise NotInOutbox(id_)
        spool.dead_letter(file, letter, "refused", "dropped by the user")


async def _is_listening(peer: Peer) -> bool:
    with trio.move_on_after(ANSWER_WITHIN):
        try:
            peer.check_socket()
            stream = await trio.open_unix_socket(peer.path)
        except (BridgeUnusable, OSError):
            return False
        await stream.aclose()
        return True
    return False
