"""Dead letters of a session: undeliverable messages with their reasons, and records that some were sent again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import MessageId, new_message_id

DeadLetterNumber = NewType("DeadLetterNumber", int)
"""Number of a dead letter: its byte offset in the session's file of dead letters, which never changes."""

DEAD_LETTERS_FILE = "letters.jsonl"
VERSION = 1


@attrs.frozen(kw_only=True)
class ResendRecord:
    """Record that the text of a dead letter was sent again in a new message."""

    id: MessageId
    """Id of the new message."""
    at: float
    """Time at which the new message was stored, in seconds since 1970."""


@attrs.frozen(kw_only=True)
class DeadLetterRecord:
    """A dead letter with its number, and the record of its resend if it was sent again."""

    number: DeadLetterNumber
    letter: DeadLetter
    resent: ResendRecord | None = None
    """None if the dead letter was not sent again, so the user can still decide to resend it."""


@attrs.frozen(kw_only=True)
class _StoredResend:
    """Line of the dead letter file about a resend: an id was reserved for the new message, or the message was stored.

    The line lacks the required fields of a dead letter, so a program that knows only dead letters skips it.
    """

    number: DeadLetterNumber
    id: MessageId
    is_done: bool
    """True if the new message is stored; False if only its id is reserved."""
    when: float
    v: int = VERSION


@attrs.define(eq=False)
class DeadLetters:
    """The dead letters of a session, in a file in *directory*. Any process may append to the file."""

    directory: Path

    def add(self, letter: DeadLetter) -> None:
        """Append *letter* to the file, not synced: only a power cut after this call can lose it. Raises `OSError`."""
        # msgspec encodes bytes in base64, so the raw bytes may be invalid UTF-8.
        self._append({**attrs.asdict(letter, recurse=False), "v": VERSION})

    def pending(self) -> list[tuple[DeadLetterNumber, DeadLetter]]:
        """Return the dead letters that were not sent again, each with its number, oldest first. Raises `OSError`."""
        return [(record.number, record.letter) for record in self.history() if record.resent is None]

    def history(self, *, after: DeadLetterNumber | None = None) -> list[DeadLetterRecord]:
        """Return all dead letters, oldest first, or only those behind dead letter *after*. Raises `OSError`.

        Incomplete and damaged records are left out. With *after*, only the file content behind that dead letter is
        read.
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
        """Reserve and return the id of the new message for sending dead letter *number* again. Raises `OSError`.

        Concurrent callers, and a caller after a crash, get the same id, so the recipient gets only one message. The
        dead letter stays pending until `finish_resend`. The time *now* is recorded with the id.
        """
        if (reserved := self._find_reserved_id(number)) is not None:
            return reserved
        id_ = new_message_id()
        self._append(_StoredResend(number=number, id=id_, is_done=False, when=now))
        # Another process may have appended its id first; the first id in the file is used by all.
        return self._find_reserved_id(number) or id_

    def finish_resend(self, number: DeadLetterNumber, id_: MessageId, now: float) -> None:
        """Record that dead letter *number* was sent again: message *id_* was stored at *now*. Raises `OSError`."""
        self._append(_StoredResend(number=number, id=id_, is_done=True, when=now))

    def _find_reserved_id(self, number: DeadLetterNumber) -> MessageId | None:
        steps = (record for _, record in self._records(number) if isinstance(record, _StoredResend))
        return next((step.id for step in steps if step.number == number), None)

    def _append(self, record: dict[str, object] | _StoredResend) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for each record: records are rare, and the directory may have been deleted since the last one.
        with Appender.open(self._path) as log:
            log.append(frame_record(msgspec.json.encode(record)))

    def _records(self, after: DeadLetterNumber | None) -> Iterator[tuple[DeadLetterNumber, DeadLetter | _StoredResend]]:
        """Yield all valid records of the file, or only those behind dead letter *after*, each with its byte offset."""
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
        with contextlib.suppress(msgspec.ValidationError):
            return _letters.decode(line)
        return _resends.decode(line)
    except ValueError:
        return None


class _Version(msgspec.Struct):
    v: int


_version = msgspec.json.Decoder(_Version)
_letters = msgspec.json.Decoder(DeadLetter)
_resends = msgspec.json.Decoder(_StoredResend)
