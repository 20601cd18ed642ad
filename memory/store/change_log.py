"""The history of a store: a log that is written before the files are, so that a crash can be finished.

A record is what was done at once: one change, or all of a group. Behind it, once all its files are in place, stands one
that says so. A record without it, at the end, is what a crash interrupted.
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
    """A change as a record holds it; text as text, so that people can read it."""

    id: int
    at: float
    author: Author
    path: str
    before: str | None = None
    before_bytes: bytes | None = None
    after: str | None = None
    after_bytes: bytes | None = None
    added: str | None = None
    """Instead of *after*, for what was only added to: a log would stand here whole with each of its lines."""
    group: str | None = None
    undoes: int | None = None
    index_line: str | None = None


class _Record(msgspec.Struct, omit_defaults=True):
    """Either changes, or that they are in place."""

    changes: list[_StoredChange] = []
    settled: int = 0
    """The last id that is in place."""


_decode: Callable[[bytes], _Record] = msgspec.json.Decoder(_Record).decode


@attrs.frozen
class ChangeLogEnd:
    """How a history ends."""

    last: int
    """The highest id; 0 if there is none."""
    pending: tuple[MemoryChange, ...]
    """What was begun, and may not be in place."""


@attrs.define(eq=False)
class ChangeLog:
    """The log of one store, open for whoever holds its lock. Blocks; raises `OSError`."""

    _log: Appender
    _descriptor: int
    """For reading."""
    _size: int
    """Before the last record that we appended."""

    def end(self) -> ChangeLogEnd:
        """How it ends. A record that was never whole is cut off: then it never happened."""
        size = os.fstat(self._descriptor).st_size
        length = min(size, _TAIL)
        while True:
            data = os.pread(self._descriptor, length, size - length)
            whole = data.rfind(b"\n") + 1
            record = _last_good(data[:whole], is_begun=length == size)
            if record is not None or length == size:
                break
            length = min(size, length * 8)
        if whole < len(data):
            self._log.cut(size - len(data) + whole)
        if record is None:
            return ChangeLogEnd(0, ())
        return ChangeLogEnd(record.settled or record.changes[-1].id, tuple(map(_change, record.changes)))

    def append(self, changes: Sequence[MemoryChange]) -> None:
        """Return once the record of *changes*, as one, survives a power cut. If this fails, nothing was recorded."""
        self._size = os.fstat(self._descriptor).st_size
        try:
            self._log.append(frame_record(msgspec.json.encode(_Record(changes=list(map(_stored, changes))))))
            self._log.sync()
        except OSError:
            with suppress(OSError):  # what is left of it is cut off, or finished, by the next one
                self.drop_last()
            raise

    def drop_last(self) -> None:
        """Drop the last record that was appended: it did not happen."""
        self._log.cut(self._size)
        self._log.sync()

    def mark_applied(self, change: MemoryChange) -> None:
        """Say that everything up to *change* is in place."""
        # Where this fails or is lost, the next one looks at the files, and finds that nothing is left to do.
        with suppress(OSError):
            self._log.append(frame_record(msgspec.json.encode(_Record(settled=int(change.id)))))

    def last_content(self, path: str) -> bytes | None:
        """What the last recorded change of *path* left there; None if there is none, or it was deleted.

        Searches backwards: what is changed often is found soon, and the rest at the speed of memory.
        """
        wanted = b'"path":' + msgspec.json.encode(path)
        end = os.fstat(self._descriptor).st_size
        while end > 0:
            start = max(0, end - _CHUNK)
            data = os.pread(self._descriptor, end - start, start)
            at = data.rfind(wanted)
            if at < 0:
                # What is looked for may lie across the border.
                end = start + len(wanted) - 1 if start else 0
                continue
            line_start, line = self._line_around(start + at)
            record = _parse_record(line)
            for stored in reversed(record.changes if record else ()):
                if stored.path == path:
                    return _change(stored).after
            end = line_start
        return None

    def batches(self) -> list[list[MemoryChange]]:
        """What was done at once, oldest first."""
        return list(_batches(self._descriptor))

    def _line_around(self, at: int) -> tuple[int, bytes]:
        """The line that the byte *at* is in, and where it starts."""
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
    """The history in the *directory*, for whoever holds the lock; *path* is for messages. Raises `OSError`."""
    with Appender.open(path / CHANGES, dir_fd=directory) as log, _reading(directory) as descriptor:
        yield ChangeLog(log, descriptor, os.fstat(descriptor).st_size)


def read_batches(directory: int) -> list[list[MemoryChange]]:
    """As `ChangeLog.batches`, without a lock: what is being appended is not there yet. Raises `OSError`."""
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


def _last_good(data: bytes, *, is_begun: bool) -> _Record | None:
    lines = data.split(b"\n")
    # The first line may be the end of one that begins earlier.
    for line in reversed(lines if is_begun else lines[1:]):
        if record := _parse_record(line):
            return record
    return None


def _parse_record(line: bytes) -> _Record | None:
    """A record; None for what is none, which is left alone and means nothing."""
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
