"""Durable file writes: atomic replacement, appended records, and overwritten blocks, with a hook for injected faults.

A record is a JSON object on one line that ends with a checksum of everything before it. It begins and ends with a
newline, so that a torn record cannot swallow the next one.

All durable writes of Coterie go through this module, so that a test can inject a torn write, a full disk or a failed
rename or fsync into each of them. These functions block, so call them from a thread. Only a short append to an open
log needs no thread, because it is a single fast write.

Where links must not be followed, pass a descriptor of the directory as *dir_fd*: a function then uses only the last
component of the path, relative to this directory.
"""

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self

import attrs

BLOCK = 4096
"""Bytes in one block of a `BlockFile`."""
_SECTOR = 512
"""Bytes that a disk writes completely or not at all."""
_CHECKSUM_SIZE = len(',"crc":"00000000"}')

Operation = Literal["write", "fsync", "rename", "cut", "delete"]


class FaultHook(Protocol):
    """Hook of tests, called before every file operation to inject a fault: an `OSError` or an incomplete write."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Return how many of the *size* bytes to write; less than *size* for a fault. May raise `OSError` instead."""
        ...


class TornWrite(OSError):
    """Only a part of the bytes was written, because the disk is full or a fault was injected."""


_hook: FaultHook | None = None
_drafts = itertools.count()


@contextlib.contextmanager
def file_faults(hook: FaultHook) -> Iterator[None]:
    """Install *hook* for every file operation of this process until the block ends."""
    global _hook  # noqa: PLW0603 - like a full disk, injected faults affect the whole process
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def find_drafts(pid: int, directory: Path) -> Iterator[Path]:
    """Return the drafts (unfinished files) that the killed process *pid* left below *directory*, to delete. Blocks."""
    return directory.rglob(f".coterie-{pid}-*.draft")


def replace_file(
    path: Path, content: bytes, *, durable: bool = True, mode: int | None = None, dir_fd: int | None = None
) -> None:
    """Replace the file at *path* with *content* atomically: a reader sees the old file or the new one, never a part.

    The new file gets exactly the permissions *mode*; None means 0o666 minus the umask. With *durable*, the content and
    the name survive a power cut once this returns. Raises `OSError`; then the old file is unchanged. Exception: if only
    the last step failed, the flush of the directory, the new file is in place, but a power cut may restore the old one.
    """
    draft = _draft_of(path)
    try:
        with os.fdopen(_create(draft, mode, dir_fd), "wb", buffering=0) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            _write(file.fileno(), content, draft)
            if durable:
                _fsync(file.fileno(), draft)
        _ask("rename", path, 0)
        os.replace(_name(draft, dir_fd), _name(path, dir_fd), src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        _unlink(draft, dir_fd)
        raise
    if durable:
        sync_directory(path.parent, dir_fd=dir_fd)


def delete_file(path: Path, *, dir_fd: int | None = None) -> None:
    """Delete *path* durably. Raises `OSError`; then the file still exists, or a power cut may restore it."""
    _ask("delete", path, 0)
    os.unlink(_name(path, dir_fd), dir_fd=dir_fd)
    sync_directory(path.parent, dir_fd=dir_fd)


@attrs.define(eq=False)
class Appender:
    """An open append-only log. Each record is one `write`, so records that several processes append never mix."""

    path: Path
    _descriptor: int

    @classmethod
    def open(cls, path: Path, *, dir_fd: int | None = None) -> "Appender":
        """Open or create *path*; its directory must exist. Raises `OSError`; with *dir_fd* also if *path* is a link."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        if dir_fd is not None:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # O_NONBLOCK: do not wait if the path is a pipe
        return cls(path, os.open(_name(path, dir_fd), flags, 0o600, dir_fd=dir_fd))

    def append(self, record: bytes) -> None:
        """Append *record* with one `write` call. Raises `OSError`; a part of the record may then be on disk.

        A partial write is never continued, because another process may already have appended its record after it.
        """
        allowed = _ask("write", self.path, len(record))
        written = os.write(self._descriptor, record[:allowed] if allowed < len(record) else record)
        if written < len(record):
            raise _torn(written, len(record), self.path)

    def cut(self, size: int) -> None:
        """Truncate the log to *size* bytes, to remove an incomplete record from its end. Raises `OSError`."""
        _ask("cut", self.path, 0)
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Flush the log: everything appended survives a power cut once this returns. Raises `OSError`."""
        _ask("fsync", self.path, 0)
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        """Return the file descriptor, so that a caller can check the type and size of the opened file."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor; appending afterwards is an error."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.define(eq=False)
class BlockFile:
    """An open file of fixed length, locked by one process, whose blocks are overwritten in place.

    When `write` returns, the content is on disk. This is about a quarter faster than an append followed by a sync,
    because no metadata of the file system changes.
    """

    path: Path
    size: int
    _descriptor: int
    _buffer: memoryview
    """Page-aligned buffer, which direct I/O requires."""

    @classmethod
    def create(cls, path: Path, size: int) -> "BlockFile":
        """Create and open a durable file filled with zeros: *size* bytes, rounded up to whole blocks. Raises `OSError`.

        An exclusive `flock` is held from before the file appears at *path* until it is closed, so that other processes
        see whether the writer still lives.
        """
        size, draft = _round_up(size), _draft_of(path)
        descriptor = _create(draft, 0o600, None)
        try:
            try:
                # Write the zeros: the first write to a block that is only allocated would change metadata.
                _write(descriptor, bytes(size), draft)
                _fsync(descriptor, draft)
            finally:
                os.close(descriptor)
            return cls._open(draft, path, size)
        except BaseException:
            _unlink(draft, None)
            raise

    @classmethod
    def _open(cls, draft: Path, path: Path, size: int) -> "BlockFile":
        descriptor = _open_direct(draft)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _ask("rename", path, 0)
            draft.replace(path)
            sync_directory(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, size, descriptor, memoryview(mmap.mmap(-1, size)))

    def write(self, content: bytes, offset: int) -> int:
        """Write *content* at *offset*, which must be the start of a block, and return the size of the written blocks.

        The remainder of the last block is filled with bytes of earlier writes. Raises `OSError`; then any part of the
        blocks may be on disk.
        """
        size = _round_up(len(content))
        self._buffer[: len(content)] = content
        allowed = _ask("write", self.path, size)
        written = os.pwritev(self._descriptor, [self._buffer[: allowed - allowed % _SECTOR]], offset)
        if written < size:
            raise _torn(written, size, self.path)
        _ask("fsync", self.path, 0)
        return size

    def close(self) -> None:
        """Close the descriptor, which releases the lock; writing afterwards is an error."""
        os.close(self._descriptor)
        self._buffer.release()


def restore_bytes(path: Path, pieces: Sequence[tuple[int, bytes]]) -> None:
    """Write the lost parts of the file *path* again, given as pairs of offset and bytes, and flush the file.

    Raises `OSError`; then the call can be repeated.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for offset, piece in pieces:
            os.lseek(descriptor, offset, os.SEEK_SET)
            _write(descriptor, piece, path)
        _fsync(descriptor, path)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path, *, dir_fd: int | None = None) -> None:
    """Flush *directory* (or *dir_fd*), so that new, renamed and deleted names survive a power cut. Raises `OSError`."""
    if dir_fd is not None:
        _fsync(dir_fd, directory)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _fsync(descriptor, directory)
    finally:
        os.close(descriptor)


def frame_record(record: bytes) -> bytes:
    """Add a checksum and newlines around *record*, which must be a non-empty JSON object without newlines."""
    start = record[:-1]
    return b'\n%s,"crc":"%08x"}\n' % (start, zlib.crc32(start))


def check_record(line: bytes) -> None:
    """Raise `ValueError` if the checksum of *line*, a framed record without its newlines, is wrong."""
    start, tail = line[:-_CHECKSUM_SIZE], line[-_CHECKSUM_SIZE:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(start):
        raise ValueError("the checksum does not match the line, so the line is damaged")


def unframe_record(line: bytes) -> bytes:
    """Return the JSON object of *line*, a framed record without its newlines. Raises `ValueError` if damaged."""
    check_record(line)
    return line[:-_CHECKSUM_SIZE] + b"}"


def _draft_of(path: Path) -> Path:
    # Short, so that a file with a name of maximum length can be replaced; numbered, for concurrent writers.
    return path.with_name(f".coterie-{os.getpid()}-{next(_drafts)}.draft")


def _create(draft: Path, mode: int | None, dir_fd: int | None) -> int:
    # Created with its final mode: otherwise another user could open it before the mode is restricted.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if dir_fd is not None:
        _unlink(draft, dir_fd)  # left by a dead process with the same pid, or a link planted there
        flags |= os.O_EXCL | os.O_NOFOLLOW
    return os.open(_name(draft, dir_fd), flags, 0o666 if mode is None else mode, dir_fd=dir_fd)


def _name(path: Path, dir_fd: int | None) -> str:
    return os.fspath(path) if dir_fd is None else path.name


def _unlink(path: Path, dir_fd: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_name(path, dir_fd), dir_fd=dir_fd)


def _ask(operation: Operation, path: Path, size: int) -> int:
    return size if _hook is None else _hook.before(operation, path, size)


def _write(descriptor: int, content: bytes, path: Path) -> None:
    allowed = _ask("write", path, len(content))
    written = os.write(descriptor, content[:allowed]) if allowed < len(content) else _write_all(descriptor, content)
    if written < len(content):
        raise _torn(written, len(content), path)


def _open_direct(path: Path) -> int:
    flags = os.O_RDWR | os.O_DSYNC | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return os.open(path, flags)  # a file system without direct I/O


def _round_up(size: int) -> int:
    """Return *size*, in bytes, rounded up to whole blocks of `BLOCK` bytes."""
    return -(-size // BLOCK) * BLOCK


def _torn(written: int, size: int, path: Path) -> TornWrite:
    return TornWrite(errno.EIO, f"only {written} of {size} bytes were written; the disk may be full", str(path))


def _write_all(descriptor: int, content: bytes) -> int:
    # On a local disk one call writes everything; the loop handles signals, quotas and writes over 2 GiB.
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(content)


def _fsync(descriptor: int, path: Path) -> None:
    _ask("fsync", path, 0)
    os.fsync(descriptor)
