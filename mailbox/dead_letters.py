"""The dead letters of a session: undeliverable mail with its reason, and what was sent again."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record
from coterie.mailbox.contract import DeadLetter, DeadReason
from coterie.mailbox.envelope import Envelope, MessageId, new_message_id

DeadLetterNumber = NewType("DeadLetterNumber", int)
"""Names a dead letter for good: where it begins in the file."""

DEAD_LETTERS_FILE = "letters.jsonl"
VERSION = 1


@attrs.frozen(kw_only=True)
class ResendRecord:
    """That the words of a dead letter were sent again."""

    id: MessageId
    """Of the new message."""
    at: float
    """When it was stored."""


@attrs.frozen(kw_only=True)
class DeadLetterRecord:
    """A dead letter, and what became of it."""

    number: DeadLetterNumber
    letter: DeadLetter
    resent: ResendRecord | None = None
    """None: it waits for somebody to decide."""


@attrs.frozen(kw_only=True)
class _StoredDeadLetter:
    reason: DeadReason
    detail: str
    mailbox: str
    at: float
    envelope: Envelope | None
    raw: str
    """In base64: it may be anything."""
    v: int = VERSION


@attrs.frozen(kw_only=True)
class _StoredResend:
    """Shares no required field with a letter, so a program that knows letters only passes over it."""

    number: DeadLetterNumber
    id: MessageId
    is_done: bool
    """Whether the new message is stored; before, it is only named."""
    when: float
    v: int = VERSION


@attrs.define(eq=False)
class DeadLetters:
    """The dead letters of a session, in `dead/` in the directory of its mail. Any process may add to them."""

    directory: Path
    is_durable: bool = attrs.field(default=False, kw_only=True)
    """Whether a letter is buried only when it survives a power cut."""

    def add(self, letter: DeadLetter) -> None:
        """Keep *letter*. It is stored when this returns. Raises `OSError`."""
        record = _StoredDeadLetter(
            reason=letter.reason,
            detail=letter.detail,
            mailbox=letter.mailbox,
            at=letter.at,
            envelope=letter.envelope,
            raw=base64.b64encode(letter.raw).decode(),
        )
        self._append(record)

    def pending(self, *, after: DeadLetterNumber | None = None) -> list[tuple[DeadLetterNumber, DeadLetter]]:
        """Those that wait for somebody to decide, as `history` reads them. Raises `OSError`."""
        return [(buried.number, buried.letter) for buried in self.history(after=after) if buried.resent is None]

    def history(self, *, after: DeadLetterNumber | None = None) -> list[DeadLetterRecord]:
        """All of them, oldest first, or those behind *after*; what is torn or damaged is left out. Raises `OSError`.

        Of the file only what stands behind *after* is read.
        """
        found: dict[DeadLetterNumber, DeadLetterRecord] = {}
        for number, record in self._records(after):
            if isinstance(record, DeadLetter):
                found[number] = DeadLetterRecord(number=number, letter=record)
            elif record.is_done and record.number in found:
                resent = ResendRecord(id=record.id, at=record.when)
                found[record.number] = attrs.evolve(found[record.number], resent=resent)
        return list(found.values())

    def begin_resend(self, number: DeadLetterNumber, now: float) -> MessageId:
        """The id under which to send the words of letter *number* again; stored when this returns. Raises `OSError`.

        It is the same for everybody who begins, at the same time or after another was killed on the way: so the
        message is delivered once, by its id. The letter waits on until `finish_resend`.
        """
        if (begun := self._find_begun(number)) is not None:
            return begun
        id_ = new_message_id()
        self._append(_StoredResend(number=number, id=id_, is_done=False, when=now))
        # Whoever wrote first has named it, also for us.
        return self._find_begun(number) or id_

    def finish_resend(self, number: DeadLetterNumber, id_: MessageId, now: float) -> None:
        """Letter *number* was sent again as *id_*, which is stored: it waits no more. Raises `OSError`."""
        self._append(_StoredResend(number=number, id=id_, is_done=True, when=now))

    def _find_begun(self, number: DeadLetterNumber) -> MessageId | None:
        steps = (record for _, record in self._records(number) if isinstance(record, _StoredResend))
        return next((step.id for step in steps if step.number == number), None)

    def _append(self, record: _StoredDeadLetter | _StoredResend) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for each: they are rare, and the directory may have been deleted since the last one.
        with Appender.open(self._path) as log:
            log.append(frame_record(msgspec.json.encode(record)))
            if self.is_durable:
                log.sync()

    def _records(self, after: DeadLetterNumber | None) -> Iterator[tuple[DeadLetterNumber, DeadLetter | _StoredResend]]:
        """What stands behind the letter *after*, each with where it begins."""
        start = 0 if after is None else after
        try:
            with self._path.open("rb") as log:
                log.seek(start)
                content = log.read()
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            if start != after and (record := _parse_line(line)) is not None:
                yield DeadLetterNumber(start), record
            start += len(line) + 1

    @property
    def _path(self) -> Path:
        return self.directory / DEAD_LETTERS_FILE


def _parse_line(line: bytes) -> DeadLetter | _StoredResend | None:
    try:
        check_record(line)
        if _version.decode(line).v != VERSION:
            return None
        return _parse_dead_letter(line) or _resendings.decode(line)
    except ValueError:
        return None


def _parse_dead_letter(line: bytes) -> DeadLetter | None:
    try:
        record = _letters.decode(line)
    except msgspec.ValidationError:
        return None
    return DeadLetter(
        reason=record.reason,
        detail=record.detail,
        mailbox=record.mailbox,
        at=record.at,
        envelope=record.envelope,
        raw=base64.b64decode(record.raw, validate=True),
    )


class _Version(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Version)
_letters = msgspec.json.Decoder(_StoredDeadLetter)
_resendings = msgspec.json.Decoder(_StoredResend)
