"""Reads a mailbox beside its owner, without locking or acknowledging."""

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
    """The messages of one mailbox, each given once; the mailbox need not exist yet.

    The segment that is read stays open, so its owner may acknowledge and delete it meanwhile.
    """

    directory: Path
    _reading: LogReader

    @classmethod
    def waiting(cls, directory: Path) -> "MailboxPeek":
        """From the first message on that is not acknowledged. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, find_cursor(directory)))

    @classmethod
    def whole(cls, directory: Path) -> "MailboxPeek":
        """From the first message on that is still on the disk. Raises `OSError`."""
        return cls(directory, LogReader.from_cursor(directory, _beginning(directory)))

    def sweep(self) -> Iterator[Envelope]:
        """What is new, in the order in which it was stored. Raises `OSError`."""
        while (line := self._next_line()) is not None:
            self._reading.skip_record(line)
            try:
                yield parse_record(line.content)
            except EnvelopeCorrupt:
                continue  # its owner buries it, and then it is seen among the dead
        if self._reading.is_lost():
            self._begin_again()

    def close(self) -> None:
        """Give the descriptor back."""
        self._reading.close()

    def _next_line(self) -> LogRecord | None:
        while True:
            try:
                return self._reading.next_record()
            except FileNotFoundError:
                continue  # a segment that was acknowledged, and deleted, since it was listed

    def _begin_again(self) -> None:
        """Read the mailbox that was made in the place of one that was deleted, or wait for it."""
        self._reading.close()
        self._reading = LogReader.from_cursor(self.directory, _beginning(self.directory))


def _beginning(directory: Path) -> Cursor:
    return Cursor(segment=min(segment_numbers(directory), default=1))
