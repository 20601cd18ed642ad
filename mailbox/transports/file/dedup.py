"""Ids of delivered messages, for dropping copies."""

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
"""Number of acknowledged ids that a reader remembers; a later copy is delivered again. At full speed these are more
than arrive while a sender that was killed before its receipt is restarted."""
RECALLED_BYTES = 1024 * 1024
"""Size of the end of the acknowledged log in which a new reader looks for ids."""


@attrs.define(eq=False)
class DeliveredIds:
    """Ids of the messages that were acknowledged most recently."""

    _ids: OrderedDict[MessageId, bool] = attrs.field(factory=OrderedDict)
    """Maps an id to True if this reader delivered the message."""

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._ids

    def has_delivered(self, id_: MessageId) -> bool:
        """True if this reader delivered the message."""
        return self._ids.get(id_, False)

    def add(self, id_: MessageId, *, is_taken: bool) -> None:
        """Remember *id_*."""
        self._ids[id_] = is_taken
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    def load(self, directory: Path, cursor: Cursor, validator: MessageValidator) -> None:
        """Load ids that earlier readers acknowledged, from the log before *cursor*. Raises `OSError`."""
        start = max(0, cursor.offset - RECALLED_BYTES)
        if cursor.offset < RECALLED_BYTES:
            path = segment_path(directory, cursor.segment - 1)
            size = path.stat().st_size if path.exists() else 0
            self.update(directory, (cursor.segment - 1, max(0, size - RECALLED_BYTES + cursor.offset)), size, validator)
        self.update(directory, (cursor.segment, start), cursor.offset, validator)

    def update(self, directory: Path, start: Position, end: int, validator: MessageValidator) -> None:
        """Add the ids of deliverable messages in one range of a segment. Raises `OSError`."""
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
