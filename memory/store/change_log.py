"""The change log of a memory store: a write-ahead log, from which a change that a crash interrupted is completed.

A record holds all changes of one transaction. After all files of a record are written, a second record confirms
this. An unconfirmed record at the end of the log is a change that a crash interrupted.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import msgspec

from coterie.files import Appender, check_record, frame_record
from coterie.memory.store.change import Author, MemoryChange

CHANGES = "changes.jsonl"
_TAIL = 4096
_CHUNK = 1 << 20


class _StoredChange(msgspec.Struct, omit_defaults=True):
    """JSON form of a `MemoryChange` in the log. UTF-8 content is stored as text, so that people can read the log."""

    id: int
    at: float
    author: Author
    path: str
    before: str | None = None
    before_bytes: bytes | None = None
    after: str | None = None
    after_bytes: bytes | None = None
    added: str | None = None
    """Text that the change appended; stored instead of `after`, so that a small addition to a long file stays small."""
    group: str | None = None
    undoes: int | None = None
    index_line: str | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    """One line of the change log: either changes, or the confirmation that changes are written to their files."""

    changes: list[_StoredChange] = []
    settled: int = 0
    """Id of the last change that is written to its file, as are all before it; 0 in a record that contains changes."""


_decode: Callable[[bytes], _Record] = msgspec.json.Decoder(_Record).decode


@attrs.frozen
class ChangeLogEnd:
    """The highest change id in a change log, and the changes at its end that are not confirmed as written."""

    last: int
    """Highest id of a change in the log; 0 for an empty log."""
    pending: tuple[MemoryChange, ...]
    """Changes of the last record, if a crash may have interrupted the writing of their files; else empty."""


@attrs.define(eq=False)
class ChangeLog:
    """The change log of one store, opened by the process that locked the store. Methods block and raise `OSError`."""

    _log: Appender
    _descriptor: int
    """File descriptor of the change log, open for reading."""
    _size: int
    """Size in bytes of the log before the last record that this process appended, for `drop_last`."""

    def end(self) -> ChangeLogEnd:
        """Return the highest change id and the unconfirmed changes of the log; cut off an incomplete last record."""
        size = os.fstat(self._descriptor).st_size
        length = min(size, _TAIL)
        while True:
            data = os.pread(self._descriptor, length, size - length)
            whole = data.rfind(b"\n") + 1
            lines = data[:whole].split(b"\n")
            # The first line may be the end of a longer line.
            complete = lines if length == size else lines[1:]
            record = next((found for line in reversed(complete) if (found := _parse_record(line))), None)
            if record is not None or length == size:
                break
            length = min(size, length * 8)
        if whole < len(data):
            self._log.cut(size - len(data) + whole)
        if record is None:
            return ChangeLogEnd(0, ())
        return ChangeLogEnd(record.settled or record.changes[-1].id, tuple(map(_change, record.changes)))

    def append(self, changes: Sequence[MemoryChange]) -> None:
        """Append *changes* as a durable record, before their files change. After an error, removes it if possible."""
        self._size = os.fstat(self._descriptor).st_size
        try:
            self._log.append(frame_record(msgspec.json.encode(_Record(changes=list(map(_stored, changes))))))
            self._log.sync()
        except OSError:
            with suppress(OSError):  # the next writer truncates or completes the remainder
                self.drop_last()
            raise

    def drop_last(self) -> None:
        """Remove the last record that this process appended from the log, because its changes were rolled back."""
        self._log.cut(self._size)
        self._log.sync()

    def mark_applied(self, change: MemoryChange) -> None:
        """Append a record that confirms that all changes up to *change* are written to their files. Never raises."""
        # If this record is lost, the next writer compares the files with the log and finds nothing to do.
        with suppress(OSError):
            self._log.append(frame_record(msgspec.json.encode(_Record(settled=int(change.id)))))

    def last_content(self, path: str) -> bytes | None:
        """Return the content of *path* after its last recorded change; None if it was deleted or never changed.

        Searches the log backwards, because paths that change often are found soon.
        """
        needle = b'"path":' + msgspec.json.encode(path)
        end = os.fstat(self._descriptor).st_size
        while end > 0:
            start = max(0, end - _CHUNK)
            data = os.pread(self._descriptor, end - start, start)
            at = data.rfind(needle)
            if at < 0:
                # The needle may cross the border of two chunks.
                end = start + len(needle) - 1 if start else 0
                continue
            line_start, line = self._line_around(start + at)
            record = _parse_record(line)
            for stored in reversed(record.changes if record else ()):
                if stored.path == path:
                    return _change(stored).after
            end = line_start
        return None

    def batches(self) -> list[list[MemoryChange]]:
        """Return all changes in the log, oldest first, as one list for each record (transaction)."""
        return list(_batches(self._descriptor))

    def _line_around(self, at: int) -> tuple[int, bytes]:
        """Return the offset and content of the log line that contains the byte at offset *at*."""
        length = _TAIL
        while True:
            start = max(0, at - length)
            data = os.pread(self._descriptor, at - start + length, start)
            begin, end = data.rfind(b"\n", 0, at - start) + 1, data.find(b"\n", at - start)
            if (begin or not start) and (end >= 0 or len(data) < at - start + length):
                return start + begin, data[begin : end if end >= 0 else None]
            length *= 8


@contextmanager
def open_change_log(directory: int, path: Path) -> Iterator[ChangeLog]:
    """Open the change log in *directory* (a descriptor; *path* is for messages); the caller holds the store's lock."""
    with Appender.open(path / CHANGES, dir_fd=directory) as log, _reading(directory) as descriptor:
        yield ChangeLog(log, descriptor, os.fstat(descriptor).st_size)


def read_batches(directory: int) -> list[list[MemoryChange]]:
    """Return all changes in the log in *directory* without a lock, one list per complete record. Raises `OSError`."""
    with _reading(directory) as descriptor:
        return list(_batches(descriptor))


@contextmanager
def _reading(directory: int) -> Iterator[int]:
    descriptor = os.open(CHANGES, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _batches(descriptor: int) -> Iterator[list[MemoryChange]]:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        for line in file:
            record = _parse_record(line[:-1]) if line.endswith(b"\n") else None
            if record is not None and record.changes:
                yield list(map(_change, record.changes))


def _parse_record(line: bytes) -> _Record | None:
    """Parse one line of the log; return None for an invalid or empty record, which readers skip."""
    try:
        check_record(line)
        record = _decode(line)
    except (ValueError, msgspec.DecodeError):
        return None
    return record if record.changes or record.settled else None


def _stored(change: MemoryChange) -> _StoredChange:
    stored = _StoredChange(
        id=int(change.id),
        at=change.at,
        author=change.author,
        path=change.path,
        group=change.group,
        undoes=None if change.undoes is None else int(change.undoes),
        index_line=change.index_line,
    )
    stored.before, stored.before_bytes = _as_text(change.before)
    if change.before and change.after is not None and change.after.startswith(change.before):
        stored.added, stored.after_bytes = _as_text(change.after[len(change.before) :])
        if stored.added is not None:
            return stored
    stored.after, stored.after_bytes = _as_text(change.after)
    return stored


def _as_text(content: bytes | None) -> tuple[str | None, bytes | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return None, content


def _change(stored: _StoredChange) -> MemoryChange:
    before = stored.before_bytes if stored.before is None else stored.before.encode()
    if stored.added is not None:
        after: bytes | None = (before or b"") + stored.added.encode()
    else:
        after = stored.after_bytes if stored.after is None else stored.after.encode()
    return MemoryChange(
        id=str(stored.id),
        at=stored.at,
        author=stored.author,
        path=stored.path,
        before=before,
        after=after,
        group=stored.group,
        undoes=None if stored.undoes is None else str(stored.undoes),
        index_line=stored.index_line,
    )
