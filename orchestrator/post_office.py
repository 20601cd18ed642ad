"""Everything that a process needs to send and read mail of a session, opened from the session's directory."""

from pathlib import Path
from typing import Self

import attrs

from coterie.clock import Clock
from coterie.mailbox.address import USER
from coterie.mailbox.bridge import BridgeTransport, HeldMail
from coterie.mailbox.contract import Keys, Transport
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Sender
from coterie.mailbox.file import FileTransport
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.roster import FileRoster
from coterie.mailbox.router import Router
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
    _keys: Keys | None

    @classmethod
    def of(cls, session: Session, clock: Clock, keys: Keys | None = None) -> "PostOffice":
        """The mail of *session*; without *keys* nothing is signed, and no MAC is checked."""
        directory = session.directory / MAIL
        roster = FileRoster(session.directory / ROSTER)
        dead = DeadLetters(directory / DEAD)
        return cls(
            session=session,
            clock=clock,
            directory=directory,
            roster=roster,
            files=FileTransport(directory, roster, keys, clock, dead.bury),
            dead=dead,
            held=HeldMail.of(directory, clock, dead.bury),
            bridge=BridgeTransport(session.id, directory, clock, dead.bury),
            keys=keys,
        )

    def router(self, local: Transport | None = None) -> Router:
        """Sends for this process. Its own agents get their mail by *local*, once they are named in `Router.locals`."""
        return Router(
            roster=self.roster,
            keys=NoKeys() if self._keys is None else self._keys,
            local=local or QueueTransport(self.roster, self._keys, self.clock, self.dead.bury),
            files=self.files,
            bridge=self.bridge,
            clock=self.clock,
        )

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
