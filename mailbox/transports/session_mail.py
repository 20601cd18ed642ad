"""Mail of one session as one process uses it: transports, roster, dead letters and signing keys."""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Self

import attrs
import msgspec

from coterie.clock import Clock
from coterie.mailbox.address import USER
from coterie.mailbox.contract import DeadLetter, Receipt, StoreDeadLetter, Transport
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.roster import FileRoster
from coterie.mailbox.router import Router
from coterie.mailbox.transports.bridge.held_mail import HeldMail
from coterie.mailbox.transports.bridge.transport import BridgeTransport
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from coterie.mailbox.validation import MessageDigest
from coterie.session_directory import DEAD_LETTER_DIRECTORY, ROSTER_FILE, SessionDirectory, mail_directory

SECRET_BYTES = 32
_PURPOSE = b"coterie mail"


@attrs.frozen
class SessionKeys:
    """The `Keys` of one run of a session: its root makes them, and gives them to its agents' processes.

    They keep out the model and its tools: what an agent writes into a mailbox by a shell is not signed. They do not
    keep out a hostile process of the same user, which can read them from the memory of another.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Those of a run that begins; nobody else has them, and no later run."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_hex(cls, secret: str) -> Self:
        """What `to_hex` gave."""
        return cls(bytes.fromhex(secret))

    def to_hex(self) -> str:
        """The secret, to be passed over a socket; never to be written, or given to a program that an agent starts."""
        return self._secret.hex()

    def key_of(self, sender: Sender) -> bytes:
        """As `Keys.key_of`. Of senders of other sessions, too: for what they send the root vouches."""
        whose = msgspec.json.encode((sender.session, sender.name, sender.incarnation))
        return hashlib.blake2b(whose, key=self._secret, person=_PURPOSE, digest_size=SECRET_BYTES).digest()


class UnsignedMail:
    """Of a process that was given none: what it sends is not signed."""

    def key_of(self, _sender: Sender) -> None:
        """None for anybody."""


@attrs.define(eq=False, kw_only=True)
class SessionMail:
    """The mail of one session, as one process handles it; any number of processes may each have one.

    The session need not run. Nothing is made on disk before something is stored. Close it when done.
    """

    session: SessionDirectory
    clock: Clock
    directory: Path
    """Where the mailboxes are."""
    roster: FileRoster
    files: FileTransport
    dead_letters: DeadLetters
    held: HeldMail
    bridge: BridgeTransport
    keys: SessionKeys | None
    """None: nothing is signed, and no MAC is checked."""

    @classmethod
    def open(
        cls,
        session: SessionDirectory,
        clock: Clock,
        keys: SessionKeys | None = None,
        *,
        believed: Mapping[str, frozenset[MessageDigest]] | None = None,
        on_untrusted: Callable[[DeadLetter], None] | None = None,
    ) -> "SessionMail":
        """The mail of *session*, signed with *keys*; *believed* is what needs no MAC, see `snapshot_pending`.

        *on_untrusted* is called with each message that its sender did not sign.
        """
        directory = mail_directory(session)
        roster = FileRoster(session.directory / ROSTER_FILE)
        dead = DeadLetters(directory / DEAD_LETTER_DIRECTORY)
        store = dead.add if on_untrusted is None else _reporting_untrusted(dead.add, on_untrusted)
        return cls(
            session=session,
            clock=clock,
            directory=directory,
            roster=roster,
            files=FileTransport(
                directory, roster, keys, clock, store, durability=session.mail, trusted=dict(believed or {})
            ),
            dead_letters=dead,
            held=HeldMail.of(directory, clock, dead.add),
            bridge=BridgeTransport(session.id, directory, clock, dead.add),
            keys=keys,
        )

    def router(self, local: Transport | None = None, local_names: AbstractSet[str] = frozenset()) -> Router:
        """Router of this process. Agents in *local_names*, which may change, get their mail by *local*."""
        return Router(
            roster=self.roster,
            keys=UnsignedMail() if self.keys is None else self.keys,
            local=local or QueueTransport(self.roster, self.keys, self.clock, self.dead_letters.add),
            files=self.files,
            bridge=self.bridge,
            clock=self.clock,
            local_names=local_names,
        )

    def sign(self, envelope: Envelope) -> Envelope:
        """*envelope* with the MAC of its sender, for whom this process answers; as it is if there are no keys."""
        return envelope if self.keys is None else envelope.sign(self.keys.key_of(envelope.sender))

    async def accept_inbound(self, letter: Envelope) -> Receipt:
        """Store a letter of another session, for which this one vouches. Raises as `Transport.send`.

        One that says it was written here is not allowed, whoever sent it.
        """
        sender = letter.sender
        if sender.session == self.session.id:
            reason = "it says that it comes from this session, and came from outside"
            raise NotAllowed(sender.name, letter.recipient.name, letter.kind, reason)
        return await self.files.send(self.sign(letter))

    def human_sender(self) -> Sender:
        """The human of this shell, as a sender."""
        # Each command is a start of its own, and its messages are counted from 1; a later start has a greater number.
        start = int(self.clock.now() * 1000)
        return Sender(name=USER, incarnation=start, session=self.session.id, kind="human")

    def close(self) -> None:
        """Give the descriptors back."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reporting_untrusted(store: StoreDeadLetter, on_untrusted: Callable[[DeadLetter], None]) -> StoreDeadLetter:
    """Return *store*, which also calls *on_untrusted* for messages with a wrong MAC."""

    def store_and_report(letter: DeadLetter) -> None:
        store(letter)
        if letter.reason == "bad_mac":
            on_untrusted(letter)

    return store_and_report
