"""Messages that a session has received from other sessions, remembered so that none is stored twice.

A record is written after its message was stored. After a crash between the two, the message is sent again, and the
transport drops it by its id.
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
"""Number of messages to remember. A session sends its messages one by one, so only its last can come again late."""


@attrs.frozen(kw_only=True)
class ReceivedRecord:
    """Record of a received message and the reply to it."""

    id: MessageId
    words: str
    """Digest that is equal for messages with the same sender, recipient and text."""
    outcome: Literal["accepted", "held"]
    stored: float


@attrs.define(eq=False)
class ReceivedIds:
    """Received messages of one session, in memory and in a file of checksummed lines with one writing process."""

    _log: Appender
    _by_id: dict[MessageId, ReceivedRecord]
    _by_content: dict[str, ReceivedRecord] = attrs.field(factory=dict, init=False)
    """Maps a digest to the last message received with it."""

    def __attrs_post_init__(self) -> None:
        self._by_content.update((record.words, record) for record in self._by_id.values())

    def find(self, envelope: Envelope, *, now: float, window: float) -> ReceivedRecord | None:
        """Return the record of this message, or of an equal one received in the *window* seconds before *now*."""
        if (record := self._by_id.get(envelope.id)) is not None:
            return record
        record = self._by_content.get(content_digest(envelope))
        # A time in the future comes from a clock that was set back; a duplicate is better than a lost message.
        return record if record is not None and now - window < record.stored <= now else None

    def add(self, record: ReceivedRecord) -> None:
        """Append *record* to the file in one bounded write. Raises `OSError`."""
        self._log.append(frame_record(msgspec.json.encode(record)))
        self._by_id[record.id] = self._by_content[record.words] = record
        while len(self._by_id) > REMEMBERED:
            oldest = self._by_id.pop(next(iter(self._by_id)))
            if self._by_content.get(oldest.words) is oldest:
                del self._by_content[oldest.words]


@contextmanager
def open_received_ids(path: Path) -> Iterator[ReceivedIds]:
    """Load the records in *path*, and drop the oldest from the file if there are too many. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    records = _read(path)
    if len(records) > REMEMBERED:
        records = dict(list(records.items())[-REMEMBERED:])
        content = b"".join(frame_record(msgspec.json.encode(record)) for record in records.values())
        replace_file(path, content, mode=0o600)
    with Appender.open(path) as log:
        yield ReceivedIds(log, records)


def content_digest(envelope: Envelope) -> str:
    """Return the digest of sender, recipient, answered message and text; repeats have the same digest."""
    sender = envelope.sender
    content = (sender.session, sender.name, envelope.recipient.name, envelope.in_reply_to, envelope.body)
    return hashlib.blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()


def _read(path: Path) -> dict[MessageId, ReceivedRecord]:
    records: dict[MessageId, ReceivedRecord] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            check_record(line)
            record = msgspec.json.decode(line, type=ReceivedRecord)
        except ValueError:
            # An empty line or a torn record. The message of a torn record is stored, and the transport knows its id.
            continue
        records[record.id] = record
    return records
