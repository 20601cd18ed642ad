"""Mail that could not be delivered, kept with the reason until somebody looks."""

import base64
from pathlib import Path
from typing import NewType

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record
from coterie.mailbox.contract import DeadLetter, DeadReason
from coterie.mailbox.envelope import Envelope

LetterNumber = NewType("LetterNumber", int)
"""Names a dead letter for good: where it begins in the file."""

LETTERS_FILE = "letters.jsonl"
VERSION = 1


@attrs.frozen(kw_only=True)
class _Record:
    reason: DeadReason
    detail: str
    mailbox: str
    at: float
    envelope: Envelope | None
    raw: str
    """In base64: it may be anything."""
    v: int = VERSION


@attrs.define(eq=False)
class DeadLetters:
    """The dead letters of a session, in `dead/` in the directory of its mail. Any process may add to them."""

    directory: Path
    is_durable: bool = attrs.field(default=False, kw_only=True)
    """Whether a letter is buried only when it survives a power cut."""

    def bury(self, letter: DeadLetter) -> None:
        """Keep *letter*. It is stored when this returns. Raises `OSError`."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = _Record(
            reason=letter.reason,
            detail=letter.detail,
            mailbox=letter.mailbox,
            at=letter.at,
            envelope=letter.envelope,
            raw=base64.b64encode(letter.raw).decode(),
        )
        # Opened for each: they are rare, and the directory may have been deleted since the last one.
        with Appender.open(self._path) as log:
            log.append(frame_record(msgspec.json.encode(record)))
            if self.is_durable:
                log.sync()

    def letters(self) -> list[tuple[LetterNumber, DeadLetter]]:
        """All of them, oldest first; what is torn or damaged is left out. Raises `OSError`."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        letters, start = [], 0
        for line in content.split(b"\n"):
            if (letter := _read(line)) is not None:
                letters.append((LetterNumber(start), letter))
            start += len(line) + 1
        return letters

    @property
    def _path(self) -> Path:
        return self.directory / LETTERS_FILE


def _read(line: bytes) -> DeadLetter | None:
    try:
        check_record(line)
        record = _decoder.decode(line)
        raw = base64.b64decode(record.raw, validate=True)
    except ValueError:
        return None
    return DeadLetter(
        reason=record.reason,
        detail=record.detail,
        mailbox=record.mailbox,
        at=record.at,
        envelope=record.envelope,
        raw=raw,
    )


_decoder = msgspec.json.Decoder(_Record)
