"""Message history of a session, merged from mailboxes, transcripts and dead letters."""

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
    """A step of one message."""

    kind: HopKind
    at: float
    """Seconds since 1970; of a stored or held one, when it was created."""
    mailbox: str
    id: MessageId | None
    """None for bytes that are no message."""
    envelope: Envelope | None = None
    """The message; of a delivered one it stands in the passage that said it was stored."""
    reason: str | None = None
    """Why it is dead."""


@attrs.define(eq=False)
class MessageHistory:
    """Reads the mail of a session again and again; what was given once is not given again."""

    _office: SessionMail
    _transcripts: SessionReader
    _logs: dict[Path, MailboxPeek] = attrs.field(factory=dict, init=False)
    _dead: DeadLetterNumber | None = attrs.field(default=None, init=False)
    """The last that was given."""
    _held: set[MessageId] = attrs.field(factory=set, init=False)

    @classmethod
    def of(cls, office: SessionMail) -> "MessageHistory":
        """The mail of the session of *office*, from its beginning, as far as it is on the disk."""
        return cls(office, SessionReader(office.session.directory))

    async def sweep(self) -> list[MessageHop]:
        """What is new, by time; of one mailbox in the order of its log. Raises `OSError` and `MailboxFailed`."""
        # The last steps are read first: whatever they tell of was stored before, and is found now or was told already.
        late = [list(self._delivered()), list(self._dead_letters())]
        held = await self._newly_held()
        return list(heapq.merge(held, *self._stored(), *late, key=lambda passage: passage.at))

    def directories(self) -> Iterator[Path]:
        """Where something changes when mail moves."""
        mail, session = self._office.directory, self._office.session.directory
        yield from (session, session / "agents", mail)
        yield from self._transcripts.agent_directories()
        yield from mail.glob("*/")

    def close(self) -> None:
        """Give the descriptors back."""
        for log in self._logs.values():
            log.close()

    def _stored(self) -> Iterator[list[MessageHop]]:
        for directory in sorted(self._office.directory.glob("*/")):
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
        for buried in self._office.dead_letters.history(after=self._dead):
            self._dead, letter = buried.number, buried.letter
            yield MessageHop(
                kind="dead",
                at=letter.at,
                mailbox=letter.mailbox,
                id=None if letter.envelope is None else letter.envelope.id,
                envelope=letter.envelope,
                reason=f"{letter.reason}: {letter.detail}",
            )

    async def _newly_held(self) -> list[MessageHop]:
        letters = await self._office.held.messages()
        new = [letter for letter in letters if letter.id not in self._held]
        self._held = {letter.id for letter in letters}
        return [_to_hop("held", letter.recipient.name, letter) for letter in new]


def _to_hop(kind: HopKind, mailbox: str, envelope: Envelope) -> MessageHop:
    return MessageHop(kind=kind, at=envelope.created, mailbox=mailbox, id=envelope.id, envelope=envelope)
