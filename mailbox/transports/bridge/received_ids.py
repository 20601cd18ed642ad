"""What a session has taken from others, remembered so that nothing is taken twice.

A letter is noted after it was stored. If the session dies in between, the same letter comes again and the transport,
which has its id, drops it.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record, replace_file
from coterie.mailbox.envelope import Envelope, MessageId

REMEMBERED = 10_000
"""Letters that are known again. A session sends its letters one by one, so only its last can come again late."""


@attrs.frozen(kw_only=True)
class ReceivedRecord:
    """That a letter was taken, and what was answered."""

    id: MessageId
    words: str
    """The same for a letter of the same sender to the same recipient that says the same."""
    outcome: Literal["accepted", "held"]
    stored: float


@attrs.define(eq=False)
class ReceivedIds:
    """The notes of one session, in memory and in a file of checksummed lines; its process alone writes there."""

    _log: Appender
    _by_id: dict[MessageId, ReceivedRecord]
    _by_content: dict[str, ReceivedRecord] = attrs.field(factory=dict, init=False)
    """Words -> the last letter that was taken with them."""

    def __attrs_post_init__(self) -> None:
        self._by_content.update((note.words, note) for note in self._by_id.values())

    def find(self, envelope: Envelope, *, now: float, window: float) -> ReceivedRecord | None:
        """The note of this letter, or of one that said the same in the *window* seconds before *now*."""
        if (note := self._by_id.get(envelope.id)) is not None:
            return note
        note = self._by_content.get(content_digest(envelope))
        # A note from the future is of a clock that was set back; better twice than not at all.
        return note if note is not None and now - window < note.stored <= now else None

    def add(self, note: ReceivedRecord) -> None:
        """Remember *note*: one bounded write. Raises `OSError`."""
        self._log.append(frame_record(msgspec.json.encode(note)))
        self._by_id[note.id] = self._by_content[note.words] = note
        while len(self._by_id) > REMEMBERED:
            oldest = self._by_id.pop(next(iter(self._by_id)))
            if self._by_content.get(oldest.words) is oldest:
                del self._by_content[oldest.words]


@contextmanager
def open_received_ids(path: Path) -> Iterator[ReceivedIds]:
    """The notes in *path*; those that are too old to matter are dropped from the file. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    notes = _read(path)
    if len(notes) > REMEMBERED:
        notes = dict(list(notes.items())[-REMEMBERED:])
        content = b"".join(frame_record(msgspec.json.encode(note)) for note in notes.values())
        replace_file(path, content, mode=0o600)
    with Appender.open(path) as log:
        yield ReceivedIds(log, notes)


def content_digest(envelope: Envelope) -> str:
    """What makes two letters say the same: sender, recipient, what they answer, and the text."""
    sender = envelope.sender
    said = (sender.session, sender.name, envelope.recipient.name, envelope.in_reply_to, envelope.body)
    return hashlib.blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()


def _read(path: Path) -> dict[MessageId, ReceivedRecord]:
    notes: dict[MessageId, ReceivedRecord] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            check_record(line)
            note = msgspec.json.decode(line, type=ReceivedRecord)
        except ValueError:
            # An empty line, or a note that was torn: its letter is stored, and its transport knows the id.
            continue
        notes[note.id] = note
    return notes
