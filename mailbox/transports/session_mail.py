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
from coterie.mailbox.contract import DeadLetter, Receipt, Transport
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
    """Signing keys of one run of a session: its root creates them and passes them to the agent processes.

    They keep out the model and its tools: a message that an agent writes into a mailbox with a shell is not signed.
    They do not keep out a hostile process of the same user, which can read them from the memory of another process.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Create random keys for a new run."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_hex(cls, secret: str) -> Self:
        """Return the keys that `to_hex` encoded."""
        return cls(bytes.fromhex(secret))

    def to_hex(self) -> str:
        """Return the secret for transfer over a socket; never write it to disk or pass it to a program of an agent."""
        return self._secret.hex()

    def key_of(self, sender: Sender) -> bytes:
        """As `Keys.key_of`, also for senders of other sessions: the root vouches for their messages."""
        whose = msgspec.json.encode((sender.session, sender.name, sender.incarnation))
        return hashlib.blake2b(whose, key=self._secret, person=_PURPOSE, digest_size=SECRET_BYTES).digest()


@attrs.define(eq=False, kw_only=True)
class SessionMail:
    """Mail of one session, as one process handles it; any number of processes may each have one.

    The session need not run. Nothing is created on disk before a message is stored. Close it after use.
    """

    session: SessionDirectory
    clock: Clock
    directory: Path
    """Directory of the mailboxes."""
    roster: FileRoster
    files: FileTransport
    dead_letters: DeadLetters
    held: HeldMail
    bridge: BridgeTransport
    keys: SessionKeys | None
    """None: messages are not signed, and no MAC is checked."""

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
        """Open the mail of *session*, signed with *keys*; *believed* needs no MAC, see `snapshot_pending`.

        *on_untrusted* is called with each message that its sender did not sign.
        """
        directory = mail_directory(session)
        roster = FileRoster(session.directory / ROSTER_FILE)
        dead = DeadLetters(directory / DEAD_LETTER_DIRECTORY)

        def store(letter: DeadLetter) -> None:
            dead.add(letter)
            if on_untrusted is not None and letter.reason == "bad_mac":
                on_untrusted(letter)

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
            keys=self.keys,
            local=local or QueueTransport(self.roster, self.keys, self.clock, self.dead_letters.add),
            files=self.files,
            bridge=self.bridge,
            clock=self.clock,
            local_names=local_names,
        )

    def sign(self, envelope: Envelope) -> Envelope:
        """Return *envelope* with the MAC of its sender, which is in this process; unchanged if there are no keys."""
        return envelope if self.keys is None else envelope.sign(self.keys.key_of(envelope.sender))

    async def accept_inbound(self, envelope: Envelope) -> Receipt:
        """Store a message of another session, for which this session vouches. Raises as `Transport.send`.

        Rejects a message that claims to come from this session.
        """
        sender = envelope.sender
        if sender.session == self.session.id:
            reason = "it claims to come from this session, but came from outside"
            raise NotAllowed(sender.name, envelope.recipient.name, envelope.kind, reason)
        return await self.files.send(self.sign(envelope))

    def human_sender(self) -> Sender:
        """Return the user at this shell as a sender."""
        # Each command is an incarnation that counts its messages from 1; later commands have greater numbers.
        start = int(self.clock.now() * 1000)
        return Sender(name=USER, incarnation=start, session=self.session.id, kind="human")

    def close(self) -> None:
        """Close all descriptors."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
