"""Read-only view of a mailbox: shows messages without locking or acknowledging them, while the owner may read too."""

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
    """Reader that returns each message of one mailbox once and changes nothing; the mailbox may not exist yet.

    The file being read stays open, so it can be read to the end even if the owner acknowledges and deletes it.
    """

    directory: Path
    _reading: LogReader

    @classmethod
    def waiting(cls, directory: Path) -> "MailboxPeek":
        """Return a reader of the mailbox *directory* that starts at the first unread message. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, find_cursor(directory)))

    @classmethod
    def whole(cls, directory: Path) -> "MailboxPeek":
        """Return a reader of the mailbox *directory* that starts at the oldest message on disk. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, _beginning(directory)))

    def sweep(self) -> Iterator[Envelope]:
        """Yield the messages stored since the last call, oldest first; skip corrupt records. Raises `OSError`."""
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
        """Close the mailbox file that is open for reading."""
        self._reading.close()

    def _next_line(self) -> LogRecord | None:
        while True:
            try:
                return self._reading.next_record()
            except FileNotFoundError:
                continue  # the segment was acknowledged and deleted after it was listed


def _beginning(directory: Path) -> Cursor:
    return Cursor(segment=min(segment_numbers(directory), default=1))
