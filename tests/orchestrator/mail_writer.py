"""Writer of the mail of a session whose agents are not running."""

from typing import Any

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, DeadReason
from coterie.mailbox.envelope import Envelope, Recipient, Sender, SenderKind
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.session_directory import MAIN, SessionDirectory


@attrs.frozen
class MailWriter:
    session: SessionDirectory
    clock: Clock = attrs.field(factory=Clock)

    def open(self) -> SessionMail:
        """Open the mail as a process of the session does."""
        return SessionMail.open(self.session, self.clock)

    def make_message(self, sender: str, to: str, body: str, *, session: str | None = None, **facts: Any) -> Envelope:
        """Make a message of an agent of this or another *session*; an *incarnation* is that of its recipient."""
        kind: SenderKind = "lead" if sender == MAIN and session is None else "peer"
        return Envelope(
            sender=Sender(name=sender, incarnation=1, session=session or self.session.id, kind=kind),
            recipient=Recipient(name=to, incarnation=facts.pop("incarnation", None)),
            sequence=1,
            body=body,
            **{"created": self.clock.now(), **facts},
        )

    def store(self, *messages: Envelope) -> None:
        async def send() -> None:
            with self.open() as mail_of_session:
                for message in messages:
                    await mail_of_session.files.send(message)

        trio.run(send)

    def add_dead_letter(self, letter: Envelope | None, reason: DeadReason = "expired", **facts: Any) -> None:
        """Add a dead letter for a message, or for torn bytes to the worker."""
        if letter is None:
            found = {"mailbox": "worker", "at": self.clock.now(), "raw": b"\x00 torn \x1b[2J"}
        else:
            found = {"mailbox": letter.recipient.name, "at": letter.created, "raw": letter.to_bytes()}
        facts = {"detail": "in a test", **found, **facts}
        with self.open() as mail_of_session:
            mail_of_session.dead_letters.add(DeadLetter(reason=reason, envelope=letter, **facts))
