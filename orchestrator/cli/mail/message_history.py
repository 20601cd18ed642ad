"""History of all messages of a session, merged from mailboxes, transcripts, held mail and undeliverable mail."""

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.events.event_reader import MailDelivered
from coterie.mailbox.dead_letters import DeadLetterNumber
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.mailbox_peek import MailboxPeek
from coterie.orchestrator.events.session_reader import SessionReader

HopKind = Literal["stored", "delivered", "dead", "held"]


@attrs.frozen(kw_only=True)
class MessageHop:
    """One step of a message: stored in a mailbox, delivered to an agent, held for the user, or undeliverable (dead)."""

    kind: HopKind
    at: float
    """Time of the step in seconds since 1970; for a stored or held message the time of its creation."""
    mailbox: str
    id: MessageId | None
    """Id of the message; None for an undeliverable message (dead letter) whose bytes are not valid."""
    envelope: Envelope | None = None
    """The message with its text; None if `kind` is "delivered" ("stored" has it), or if the bytes are no message."""
    reason: str | None = None
    """Reason why the message is a dead letter (undeliverable); None for other steps."""


@attrs.define(eq=False)
class MessageHistory:
    """Reader of the steps of all messages of a session (stored, delivered, held for the user, dead), once each."""

    _mail: SessionMail
    _transcripts: SessionReader
    _logs: dict[Path, MailboxPeek] = attrs.field(factory=dict, init=False)
    _dead: DeadLetterNumber | None = attrs.field(default=None, init=False)
    """Number of the newest dead letter (undeliverable message) that was returned; None before the first one."""
    _held: set[MessageId] = attrs.field(factory=set, init=False)

    @classmethod
    def of(cls, mail: SessionMail) -> "MessageHistory":
        """Return a reader of the history of *mail*, which begins with the oldest step that is still on disk."""
        return cls(mail, SessionReader(mail.session.directory))

    async def sweep(self) -> list[MessageHop]:
        """Return the steps since the last call by time; stored messages of one mailbox keep the order of its log.

        Raises `OSError` and `MailboxFailed`.
        """
        # Deliveries and dead letters are read first: their messages were stored earlier, so `_stored` finds them below.
        late = [list(self._delivered()), list(self._dead_letters())]
        messages = await self._mail.held.messages()
        held = [_to_hop("held", each.recipient.name, each) for each in messages if each.id not in self._held]
        self._held = {each.id for each in messages}
        return list(heapq.merge(held, *self._stored(), *late, key=lambda hop: hop.at))

    def directories(self) -> Iterator[Path]:
        """Yield the directories to watch for new steps: in at least one of them a file changes with each step."""
        mail, session = self._mail.directory, self._mail.session.directory
        yield from (session, session / "agents", mail)
        yield from self._transcripts.agent_directories()
        yield from mail.glob("*/")

    def close(self) -> None:
        """Close the mailbox files that are open for reading."""
        for log in self._logs.values():
            log.close()

    def _stored(self) -> Iterator[list[MessageHop]]:
        for directory in sorted(self._mail.directory.glob("*/")):
            if directory not in self._logs and segment_numbers(directory):
                self._logs[directory] = MailboxPeek.whole(directory)
        for directory, log in self._logs.items():
            yield [_to_hop("stored", directory.name, envelope) for envelope in log.sweep()]

    def _delivered(self) -> Iterator[MessageHop]:
        for observed in self._transcripts.read_new():
            if isinstance(observed.event, MailDelivered):
                for id_ in observed.event.ids:
                    yield MessageHop(kind="delivered", at=observed.at, mailbox=observed.agent, id=MessageId(id_))

    def _dead_letters(self) -> Iterator[MessageHop]:
        for record in self._mail.dead_letters.history(after=self._dead):
            self._dead, letter = record.number, record.letter
            yield MessageHop(
                kind="dead",
                at=letter.at,
                mailbox=letter.mailbox,
                id=None if letter.envelope is None else letter.envelope.id,
                envelope=letter.envelope,
                reason=f"{letter.reason}: {letter.detail}",
            )


def _to_hop(kind: HopKind, mailbox: str, envelope: Envelope) -> MessageHop:
    return MessageHop(kind=kind, at=envelope.created, mailbox=mailbox, id=envelope.id, envelope=envelope)
