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
    """Signing keys of one run of a session. The root (its main process) creates them and passes them to the agents.

    They protect against forgery by models and tools: a message that an agent writes into a mailbox with a shell has no
    valid signature. A hostile process of the same user can still forge, as it can read the memory of agents.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Create random keys for a new run of a session."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_hex(cls, secret: str) -> Self:
        """Return the keys whose secret `to_hex` has encoded."""
        return cls(bytes.fromhex(secret))

    def to_hex(self) -> str:
        """Return the secret in hex, to send over a socket. Never write it to disk or pass it to an agent's program."""
        return self._secret.hex()

    def key_of(self, sender: Sender) -> bytes:
        """Return the signing key of this incarnation (start) of *sender*.

        Senders of other sessions have a key too, with which the root signs their messages.
        """
        whose = msgspec.json.encode((sender.session, sender.name, sender.incarnation))
        return hashlib.blake2b(whose, key=self._secret, person=_PURPOSE, digest_size=SECRET_BYTES).digest()


@attrs.define(eq=False, kw_only=True)
class SessionMail:
    """Mail of one session for one process: mailboxes, roster, dead letters and mail of other sessions.

    Any number of processes may each open one for the same session, which need not run. Opening it
    creates no file. Close the object after use.
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
    """Keys that sign messages and check their MACs; None: messages are not signed, and no MAC is checked."""

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
        """Open the mail of *session*. Messages are signed and checked with *keys*; with None, neither is done.

        *believed* has the digests of pending messages that need no MAC, by mailbox (see `snapshot_pending`).
        *on_untrusted* is called with each message that becomes a dead letter because its sender did not sign it.
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
        """Return the router that sends the messages of this process.

        Agents in *local_names*, a set that may change, get their messages by the transport *local*, the others by file.
        """
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
        """Return *envelope* with a MAC made with the key of its sender; unchanged if `keys` is None."""
        return envelope if self.keys is None else envelope.sign(self.keys.key_of(envelope.sender))

    async def accept_inbound(self, envelope: Envelope) -> Receipt:
        """Sign and store a message that came from another session. Raises as `Transport.send`.

        Raises `NotAllowed` for a message that claims to come from this session.
        """
        sender = envelope.sender
        if sender.session == self.session.id:
            reason = "it claims to come from this session, but came from outside"
            raise NotAllowed(sender.name, envelope.recipient.name, envelope.kind, reason)
        return await self.files.send(self.sign(envelope))

    def human_sender(self) -> Sender:
        """Return the sender for messages that the user sends with a command of this process."""
        # Each command is an incarnation that counts its messages from 1; later commands have greater numbers.
        start = int(self.clock.now() * 1000)
        return Sender(name=USER, incarnation=start, session=self.session.id, kind="human")

    def close(self) -> None:
        """Close the open mailbox files."""
        self.files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
