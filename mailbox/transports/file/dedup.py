"""Ids of delivered messages, so that a copy is not delivered again."""

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
"""Acknowledged ids that a reader knows; a copy stored later than that is delivered again. At full speed it is more than
comes in while a sender that was killed before its receipt is started again."""
RECALLED_BYTES = 1024 * 1024
"""How much of the acknowledged log a new reader looks through for ids."""


@attrs.define(eq=False)
class DeliveredIds:
    """The ids of what was acknowledged last."""

    _ids: OrderedDict[MessageId, bool] = attrs.field(factory=OrderedDict)
    """Id -> whether this reader had it."""

    def __contains__(self, id_: MessageId) -> bool:
        return id_ in self._ids

    def has_delivered(self, id_: MessageId) -> bool:
        """Whether it was this reader that had it."""
        return self._ids.get(id_, False)

    def add(self, id_: MessageId, *, is_taken: bool) -> None:
        """Know *id_* from now on."""
        self._ids[id_] = is_taken
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)

    def load(self, directory: Path, cursor: Cursor, screen: MessageValidator) -> None:
        """Learn what an earlier reader acknowledged from the log that it left. Raises `OSError`."""
        start = max(0, cursor.offset - RECALLED_BYTES)
        if cursor.offset < RECALLED_BYTES:
            path = segment_path(directory, cursor.segment - 1)
            size = path.stat().st_size if path.exists() else 0
            self.update(directory, (cursor.segment - 1, max(0, size - RECALLED_BYTES + cursor.offset)), size, screen)
        self.update(directory, (cursor.segment, start), cursor.offset, screen)

    def update(self, directory: Path, start: Position, end: int, screen: MessageValidator) -> None:
        """Know what is delivered from one stretch of a segment. Raises `OSError`."""
        segment, offset = start
        path = segment_path(directory, segment)
        if offset >= end or not path.exists():
            return
        with path.open("rb") as log:
            log.seek(offset, os.SEEK_SET)
            for content in log.read(end - offset).split(b"\n"):
                self._add_record(content, screen)

    def _add_record(self, content: bytes, screen: MessageValidator) -> None:
        try:
            envelope = parse_record(content)
        except EnvelopeCorrupt:
            return
        # What was buried may be sent again under its id: only what could have been delivered is known.
        if screen.rejection_reason(envelope) is None:
            self.add(envelope.id, is_taken=False)
