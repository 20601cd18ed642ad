"""Everything that a process needs to send and read mail of a session, opened from the session's directory."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import attrs

from coterie.agents.events import Event, Noticed
from coterie.clock import Clock
from coterie.mailbox.address import USER
from coterie.mailbox.bridge import BridgeTransport, HeldMail
from coterie.mailbox.contract import Bury, DeadLetter, Receipt, Transport
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Envelope, Sender
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.file import FileTransport
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.roster import FileRoster
from coterie.mailbox.router import Router
from coterie.mailbox.screen import Digest
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.session import Session

MAIL = "mail"
DEAD = "dead"
"""Within the mail."""
ROSTER = "roster.json"
"""In the directory of a session, as the mail is."""


class NoKeys:
    """Of a process that was given none: what it sends is not signed."""

    def key_of(self, _sender: Sender) -> None:
        """None for anybody."""


@attrs.define(eq=False, kw_only=True)
class PostOffice:
    """The mail of one session, as one process handles it; any number of processes may each have one.

    The session need not run. Nothing is made on disk before something is stored. Close it when done.
    """

    session: Session
    clock: Clock
    directory: Path
    """Where the mailboxes are."""
    roster: FileRoster
    files: FileTransport
    dead: DeadLetters
    held: HeldMail
    bridge: BridgeTransport
    keys: SessionKeys | None
    """None: nothing is signed, and no MAC is checked."""

    @classmethod
    def of(
        cls,
        session: Session,
        clock: Clock,
        keys: SessionKeys | None = None,
        *,
        believed: Mapping[str, frozenset[Digest]] | None = None,
        tell: Callable[[Event], None] | None = None,
    ) -> "PostOffice":
        """The mail of *session*, signed with *keys*; *believed* is what needs no MAC, see `note_waiting`.

        *tell* hears of mail that is not believed.
        """
        directory = mail_directory(session)
        roster = FileRoster(session.directory / ROSTER)
        dead = DeadLetters(directory / DEAD)
        bury = dead.bury if tell is None else _telling(dead.bury, tell)
        return cls(
            session=session,
            clock=clock,
            directory=directory,
            roster=roster,
            files=FileTransport(
                directory, roster, keys, clock, bury, durability=session.mail, believed=dict(believed or {})
            ),
            dead=dead,
            held=HeldMail.of(directory, clock, dead.bury),
            bridge=BridgeTransport(session.id, directory, clock, dead.bury),
            keys=keys,
        )

    def router(self, local: Transport | None = None) -> Router:
        """Sends for this process. Its own agents get their mail by *local*, once they are named in `Router.locals`."""
        return Router(
            roster=self.roster,
            keys=NoKeys() if self.keys is None else self.keys,
            local=local or QueueTransport(self.roster, self.keys, self.clock, self.dead.bury),
            files=self.files,
            bridge=self.bridge,
            clock=self.clock,
        )

    def sign(self, envelope: Envelope) -> Envelope:
        """*envelope* with the MAC of its sender, for whom this process answers; as it is if there are no keys."""
        return envelope if self.keys is None else envelope.sign(self.keys.key_of(envelope.sender))

    async def take_in(self, letter: Envelope) -> Receipt:
        """Store a letter of another session, for which this one vouches. Raises as `Transport.send`.

        One that says it was written here is not allowed, whoever sent it.
        """
        sender = letter.sender
        if sender.session == self.session.id:
            reason = "it says that it comes from this session, and came from outside"
            raise NotAllowed(sender.name, letter.recipient.name, letter.kind, reason)
        return await self.files.send(self.sign(letter))

    def human(self) -> Sender:
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


def mail_directory(session: Session) -> Path:
    """Where the mailboxes of *session* are."""
    return session.directory / MAIL


def _telling(bury: Bury, tell: Callable[[Event], None]) -> Bury:
    """As *bury*; what its sender did not sign is told of, too."""

    def bury_and_tell(letter: DeadLetter) -> None:
        bury(letter)
        if letter.reason == "bad_mac":
            reason = f"a message is not believed: {letter.detail}"
            tell(Noticed(source=f"the mailbox of {letter.mailbox}", reason=reason))

    return bury_and_tell
