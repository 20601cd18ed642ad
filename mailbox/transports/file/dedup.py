"""Ids of acknowledged messages, by which the reader of a mailbox recognizes and drops further copies of a message."""

import os
from collections import OrderedDict
from pathlib import Path

import attrs

from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.mailbox.transports.file.cursor import Cursor, Position
from coterie.mailbox.transports.file.log_segments import segment_path
from coterie.mailbox.transports.file.segment_reader import parse_record
from coterie.mailbox.validation import MessageValidator

REMEMBERED = 100_000
"""Number of newest acknowledged ids that a reader remembers; a copy of an older message is delivered again. Even at
full speed, fewer messages arrive while a killed sender is restarted, which may then send its last message again."""
RECALLED_BYTES = 1024 * 1024
"""Number of bytes before the cursor of a mailbox from which a new reader loads the ids of acknowledged messages."""


@attrs.define(eq=False)
class DeliveredIds:
    """Ids of the most recently acknowledged messages of one mailbox, up to a maximum of `REMEMBERED`."""

    _ids: OrderedDict[MessageId, bool] = attrs.field(factory=OrderedDict)
    """Maps the id of each message to True if the current reader delivered it, and to False otherwise."""

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._ids

    def has_delivered(self, id_: MessageId) -> bool:
        """True if message *id_* is acknowledged and was delivered by the current reader, not by an earlier one."""
        return self._ids.get(id_, False)

    def add(self, id_: MessageId, *, is_taken: bool) -> None:
        """Add *id_*, and drop the oldest id above the maximum. *is_taken*: the current reader delivered the message."""
        self._ids[id_] = is_taken
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    def load(self, directory: Path, cursor: Cursor, validator: MessageValidator) -> None:
        """Add ids that earlier readers acknowledged: the last `RECALLED_BYTES` before *cursor*. Raises `OSError`."""
        start = max(0, cursor.offset - RECALLED_BYTES)
        if cursor.offset < RECALLED_BYTES:
            path = segment_path(directory, cursor.segment - 1)
            size = path.stat().st_size if path.exists() else 0
            self.update(directory, (cursor.segment - 1, max(0, size - RECALLED_BYTES + cursor.offset)), size, validator)
        self.update(directory, (cursor.segment, start), cursor.offset, validator)

    def update(self, directory: Path, start: Position, end: int, validator: MessageValidator) -> None:
        """Add the ids of the valid messages in the log from *start* to offset *end* of one file. Raises `OSError`."""
        segment, offset = start
        path = segment_path(directory, segment)
        if offset >= end or not path.exists():
            return
        with path.open("rb") as log:
            log.seek(offset, os.SEEK_SET)
            for content in log.read(end - offset).split(b"\n"):
                try:
                    envelope = parse_record(content)
                except EnvelopeCorrupt:
                    continue
                # A dead-lettered message may be resent under its id, so only deliverable messages count.
                if validator.rejection_reason(envelope) is None:
                    self.add(envelope.id, is_taken=False)
