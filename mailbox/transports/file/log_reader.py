"""Reader of a mailbox's log over all its segments (numbered files), and functions that list pending messages."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxFailed
from coterie.mailbox.policy import NEVER_WAKES
from coterie.mailbox.transports.file.cursor import AckProgress, Cursor, Position, load_cursor
from coterie.mailbox.transports.file.log_segments import segment_numbers, segment_path
from coterie.mailbox.transports.file.segment_reader import LogRecord, SegmentReader, parse_record
from coterie.mailbox.validation import MessageDigest, message_digest


@attrs.define(eq=False)
class LogReader:
    """Reads the records (stored messages) of a mailbox from its cursor on, without those already acknowledged."""

    _directory: Path
    progress: AckProgress
    """Acknowledged positions in the log; this reader also records there which segments it has read to the end."""
    _done: dict[Position, int]
    """Maps the start of each byte range that an earlier reader acknowledged, and that is skipped, to its end."""
    _tail: SegmentReader | None = attrs.field(default=None, init=False)
    """Reader of the current segment (log file); None before the first one is opened."""

    @classmethod
    def from_cursor(cls, directory: Path, cursor: Cursor) -> "LogReader":
        """Return a reader of the mailbox in *directory* that starts at *cursor*; files are opened when needed."""
        done = {(span.segment, span.start): span.end for span in cursor.done}
        return cls(directory, AckProgress.from_cursor(cursor), done)

    @property
    def position(self) -> Position:
        """Segment number and byte offset of the next record (stored message) to read."""
        return self.progress.position if self._tail is None else (self._tail.number, self._tail.offset)

    @property
    def has_begun(self) -> bool:
        """True if a segment (log file) is open; False before the first one was found, and after `close`."""
        return self._tail is not None

    def next_record(self) -> LogRecord | None:
        """Return the next record (stored message) without advancing; None if there is none yet. Raises `OSError`."""
        while True:
            if self._tail is not None and (line := self._next_line_of(self._tail)) is not None:
                return line
            if not self._advance():
                return None

    def skip_record(self, line: LogRecord) -> None:
        """Move the read position behind *line*, the record (stored message) that `next_record` returned last."""
        assert self._tail is not None
        self._tail.move(line.span.end)

    def may_have_record(self) -> bool:
        """True if there are new bytes, so that `next_record` may return a record not returned yet. Raises `OSError`."""
        if self._tail is None:
            return bool(segment_numbers(self._directory))
        return self._tail.may_have_record() or (self._tail.is_sealed and self._following(self._tail) is not None)

    def is_unfinished(self) -> bool:
        """True if the bytes read last are an incomplete record: its writer is still appending it, or has died."""
        return self._tail is not None and self._tail.is_unfinished()

    def is_lost(self) -> bool:
        """True if the segment (log file) that this reader has open was deleted."""
        return self._tail is not None and self._tail.is_deleted()

    def close(self) -> None:
        """Close the open segment (log file), if there is one."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _next_line_of(self, tail: SegmentReader) -> LogRecord | None:
        while self._done and (end := self._done.pop((tail.number, tail.offset), None)) is not None:
            tail.move(end)
        return tail.next_record()

    def _advance(self) -> bool:
        """Open the next segment (log file) if the current one is read to its end; True if there is more to read."""
        tail = self._tail
        if tail is None:
            return self._begin()
        # A sealed segment does not grow. Its size is checked again, because it may have grown before it was sealed.
        if not tail.is_sealed or (following := self._following(tail)) is None:
            return False
        if tail.may_have_record() or tail.is_unfinished():
            return True
        self._tail = SegmentReader.open(self._directory, following)
        self.progress.leave(tail.number, tail.offset, following)
        tail.close()
        return True

    def _begin(self) -> bool:
        segment, offset = self.progress.position
        first = next((number for number in segment_numbers(self._directory) if number >= segment), None)
        if first is None:
            return False
        self._tail = SegmentReader.open(self._directory, first, offset if first == segment else 0)
        if first != segment:
            self.progress.leave(segment, offset, first)
        return True

    def _following(self, tail: SegmentReader) -> int | None:
        return next((number for number in segment_numbers(self._directory) if number > tail.number), None)


def find_cursor(directory: Path) -> Cursor:
    """Return the cursor at which to start reading a mailbox: the stored one, or the start of a log file if unusable.

    Unusable: missing, damaged, or pointing into a deleted or shortened log file. Raises `OSError`.
    """
    kept, numbers = load_cursor(directory), segment_numbers(directory)
    if kept is None or not numbers:
        return kept or Cursor(segment=numbers[0] if numbers else 1)
    if kept.segment in numbers:
        is_beyond = kept.offset > segment_path(directory, kept.segment).stat().st_size
        return Cursor(segment=kept.segment) if is_beyond else kept
    later = [number for number in numbers if number > kept.segment]
    first = later[0] if later else numbers[0]
    return Cursor(segment=first, done=tuple(span for span in kept.done if span.segment >= first), taken=kept.taken)


def snapshot_pending(directory: Path) -> dict[str, frozenset[MessageDigest]]:
    """Return the digests of all unacknowledged messages below *directory*, by the name of their mailbox.

    The caller will accept these messages without a MAC (signature), because their keys are lost or never existed. So
    call this before any process starts that could forge mail. A log position would not be enough, because the log
    before it could be overwritten. Only reads, without a lock. Blocks. Raises `MailboxFailed`.
    """
    try:
        mailboxes = [entry for entry in directory.glob("*/") if segment_numbers(entry)]
        digests_by_name = {mailbox.name: frozenset(map(message_digest, read_pending(mailbox))) for mailbox in mailboxes}
    except OSError as exc:
        raise MailboxFailed(str(directory), f"cannot be read: {exc.strerror}; check its permissions") from exc
    return {name: digests for name, digests in digests_by_name.items() if digests}


def needs_turn(mailbox: Path) -> bool:
    """True if an unacknowledged message in the directory *mailbox* is of a kind that wakes its agent. Blocks.

    Also True if the mail cannot be read, because the agent must start to report the error. Mail that is acknowledged
    and deleted during this call may count too.
    """
    try:
        return any(envelope.kind not in NEVER_WAKES for envelope in read_pending(mailbox))
    except OSError:
        return True


def read_pending(mailbox: Path) -> Iterator[Envelope]:
    """Yield the unacknowledged, intact messages in the directory *mailbox*, oldest first. Blocks. Raises `OSError`."""
    with closing(LogReader.from_cursor(mailbox, find_cursor(mailbox))) as reader:
        while (line := reader.next_record()) is not None:
            reader.skip_record(line)
            try:
                yield parse_record(line.content)
            except EnvelopeCorrupt:
                continue  # the reader of the mailbox dead-letters it
