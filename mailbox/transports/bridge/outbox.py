"""Outbox of a session: messages that wait until the session to which they are sent listens."""

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
"""Seconds after which a socket that accepts no connection counts as not listening."""


@attrs.define(eq=False)
class NotInOutbox(MailboxError):
    """No message in the outbox has this id: it never existed, was forwarded or dropped, or expired."""

    id: str

    def __str__(self) -> str:
        return f"no message in the outbox has the id {self.id!r}"


@attrs.frozen(kw_only=True)
class OutboxQueue:
    """Number and size of the messages that wait in the outbox for one other session."""

    address: str
    is_listening: bool
    """True if a process accepts connections at the address. Then a forwarding process delivers the messages soon."""
    backlog: Backlog


@attrs.define(eq=False)
class Outbox:
    """Messages of one session that wait for other sessions.

    Any process of the user may list or drop them, even if the session does not run.
    """

    directory: Path
    _clock: Clock
    _store_dead_letter: StoreDeadLetter
    _limits: MailLimits
    """Limits of the mail that waits for each destination."""
    _spools: dict[Peer, Spool] = attrs.field(factory=dict, init=False)

    async def queues(self) -> list[OutboxQueue]:
        """Return the destinations with pending mail, each with the size of that mail. Raises `MailboxFailed`."""
        return [
            OutboxQueue(
                address=peer.address,
                is_listening=await _is_listening(peer),
                backlog=await trio.to_thread.run_sync(self.spool_of(peer).backlog),
            )
            for peer in await trio.to_thread.run_sync(self.peers_sync)
        ]

    async def messages(self) -> list[tuple[str, Envelope]]:
        """Return all messages with their destination address, oldest first per address. Raises `MailboxFailed`."""

        def peek_sync() -> list[tuple[str, Envelope]]:
            spools = [self.spool_of(peer) for peer in self.peers_sync()]
            found = [(spool.mailbox, spool.peek(file)) for spool in spools for file in spool.files()]
            return [(address, envelope) for address, envelope in found if envelope is not None]

        return await trio.to_thread.run_sync(peek_sync)

    async def drop(self, id_: MessageId) -> None:
        """Move the message *id_* to the dead letters. A cancellation moves it completely or not at all.

        Raises `NotInOutbox`, `MailboxFailed`, and `MailboxBusy` while another process forwards the mail for that
        destination, because the other session may have received the message.
        """

        def drop_sync() -> None:
            spools = (self.spool_of(peer) for peer in self.peers_sync())
            spool = next((spool for spool in spools if spool.find(id_) is not None), None)
            if spool is None:
                raise NotInOutbox(id_)
            with spool.try_lock() as is_locked:
                if not is_locked:
                    raise MailboxBusy(spool.mailbox)
                # Searched again under the lock: another process may have forwarded it before.
                file = spool.find(id_)
                envelope = None if file is None else spool.read(file)
                if file is None or envelope is None:
                    raise NotInOutbox(id_)
                spool.dead_letter(file, envelope, "refused", "dropped by the user")

        await trio.to_thread.run_sync(drop_sync)

    def peers_sync(self) -> list[Peer]:
        """Return the destinations with pending mail. Raises `MailboxFailed`."""
        peers = [Peer.of_directory(directory.name) for directory in self.directories_sync()]
        return [peer for peer in peers if peer is not None and self.spool_of(peer).files()]

    def create_directory_sync(self) -> Path:
        """Return the directory of the outbox, and create it if it is missing. Raises `MailboxFailed`."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise MailboxFailed(DIRECTORY, str(exc)) from exc
        return self.directory

    def directories_sync(self) -> list[Path]:
        """Return the directories of all destinations that messages have waited for. Raises `MailboxFailed`."""
        try:
            return sorted(self.directory.glob("*/"))
        except OSError as exc:
            raise MailboxFailed(DIRECTORY, str(exc)) from exc

    def spool_of(self, peer: Peer) -> Spool:
        """Return the spool (directory of waiting messages) for *peer*. The directory need not exist yet."""
        if peer not in self._spools:
            directory = self.directory / peer.directory
            self._spools[peer] = Spool(directory, peer.address, self._store_dead_letter, self._clock, self._limits)
        return self._spools[peer]


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
