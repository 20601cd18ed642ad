"""Reads a mailbox without locking or acknowledging, while its owner may use it."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.mailbox.transports.file.cursor import Cursor
from coterie.mailbox.transports.file.log_reader import LogReader, find_cursor
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.file.segment_reader import LogRecord, parse_record


@attrs.define(eq=False)
class MailboxPeek:
    """The messages of one mailbox, each returned once; the mailbox may be created later.

    The segment being read stays open, so its owner may acknowledge and delete it.
    """

    directory: Path
    _reading: LogReader

    @classmethod
    def waiting(cls, directory: Path) -> "MailboxPeek":
        """Open the mailbox at its first unacknowledged message. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, find_cursor(directory)))

    @classmethod
    def whole(cls, directory: Path) -> "MailboxPeek":
        """Open the mailbox at the first message that is still on disk. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, _beginning(directory)))

    def sweep(self) -> Iterator[Envelope]:
        """New messages, in the order in which they were stored. Raises `OSError`."""
        while (line := self._next_line()) is not None:
            self._reading.skip_record(line)
            try:
                yield parse_record(line.content)
            except EnvelopeCorrupt:
                continue  # its owner dead-letters it, and it appears there
        if self._reading.is_lost():
            # Start again in the mailbox that replaced the deleted one, or wait until there is one.
            self._reading.close()
            self._reading = LogReader.from_cursor(self.directory, _beginning(self.directory))

    def close(self) -> None:
        """Close the open segment."""
        self._reading.close()

    def _next_line(self) -> LogRecord | None:
        while True:
            try:
                return self._reading.next_record()
            except FileNotFoundError:
                continue  # the segment was acknowledged and deleted after it was listed


def _beginning(directory: Path) -> Cursor:
    return Cursor(segment=min(segment_numbers(directory), default=1))
