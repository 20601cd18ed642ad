"""The one module that writes files: replace whole, append one record, or write over; with a seeded fault hook.

A record is a JSON object on a line that ends with a checksum of everything before it. It begins and ends with a
newline, so that a torn record cannot swallow the next one.

Every durable byte of Coterie goes through this module, so a test that injects a torn write, a full disk or a failed
rename or fsync reaches all of it. These functions block: call them from a thread,
except a bounded append to an open log, which is one inline write.

Where no link may be followed, a function is given a descriptor of the directory, *dir_fd*: of the path it then uses the
name alone, and looks it up there.
"""

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self

import attrs

BLOCK = 4096
"""Bytes that a disk writes over at once."""
_SECTOR = 512
"""Bytes that are written whole, or not at all."""
_CHECKSUM_SIZE = len(',"crc":"00000000"}')

Operation = Literal["write", "fsync", "rename", "cut", "delete"]


class FaultHook(Protocol):
    """Asked before every operation; may raise `OSError`, or shorten a write to make it torn."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """The number of bytes to really write; *size* when nothing is wrong."""
        ...


class TornWrite(OSError):
    """A write ended early: the fault hook's stand-in for a crash in the middle of it."""


@attrs.define(eq=False)
class SeededFaults:
    """Fails each kind of operation with a given probability, the same way for the same seed."""

    seed: int
    torn: float = 0.0
    full: float = 0.0
    fsync: float = 0.0
    rename: float = 0.0
    _random: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - repeatable, not secret

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, float]) -> "SeededFaults":
        """Faults as a scenario writes them: `{seed: 7, torn: 0.01}`.

        Raises `TypeError` for a key that is no fault.
        """
        return cls(**{**mapping, "seed": int(mapping.get("seed", 0))})  # type: ignore[arg-type]  # float | int by key

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Draw once per operation, so that a run's faults depend on the seed and the order of writes."""
        draw = self._random.random()
        if operation == "rename" and draw < self.rename:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if operation == "fsync" and draw < self.fsync:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if operation == "write" and draw < self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if operation == "write" and draw < self.full + self.torn:
            return self._random.randrange(size) if size else 0
        return size


_hook: FaultHook | None = None
_drafts = itertools.count()


@contextlib.contextmanager
def file_faults(hook: FaultHook) -> Iterator[None]:
    """Let *hook* decide over every write of this process until the block ends."""
    global _hook  # noqa: PLW0603 - faults are a property of the process, as a full disk is
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def find_drafts(pid: int, directory: Path) -> Iterator[Path]:
    """What the process *pid* writes below *directory*, and has not put in its place. Blocks."""
    return directory.rglob(f".coterie-{pid}-*.draft")


def replace_file(
    path: Path, content: bytes, *, durable: bool = True, mode: int | None = None, dir_fd: int | None = None
) -> None:
    """Put *content* at *path* so that a reader sees the old file or the new one, never a part.

    The new file has exactly the permissions *mode*; with None those that the umask leaves of 0o666.
    With *durable* both the bytes and the name survive a power cut once this returns. Raises `OSError`; no draft is then
    left behind and the old file is untouched, unless it was the very last step that failed: then the new file is in
    place, but a power cut may bring the old one back.
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
    """Delete *path*, durably. Raises `OSError`; the file is then there, or a power cut may bring it back."""
    _ask("delete", path, 0)
    os.unlink(_name(path, dir_fd), dir_fd=dir_fd)
    sync_directory(path.parent, dir_fd=dir_fd)


@attrs.define(eq=False)
class Appender:
    """An append-only log held open by one owner; each record is one `write` on an O_APPEND descriptor."""

    path: Path
    _descriptor: int

    @classmethod
    def open(cls, path: Path, *, dir_fd: int | None = None) -> "Appender":
        """Open or create *path*; its directory must exist. Raises `OSError`, with *dir_fd* also for a link."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        if dir_fd is not None:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # nor wait at a pipe that lies in its place
        return cls(path, os.open(_name(path, dir_fd), flags, 0o600, dir_fd=dir_fd))

    def append(self, record: bytes) -> None:
        """Write *record* at the end in one call. Raises `OSError`; part of the record may then be on disk.

        A call that wrote only a part is never gone on with: another process's record may stand behind it already.
        """
        allowed = _ask("write", self.path, len(record))
        written = os.write(self._descriptor, record[:allowed] if allowed < len(record) else record)
        if written < len(record):
            raise _torn(written, len(record), self.path)

    def cut(self, size: int) -> None:
        """Drop everything behind the first *size* bytes: what a torn append left. Raises `OSError`."""
        _ask("cut", self.path, 0)
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Return once everything appended survives a power cut. Raises `OSError`."""
        _ask("fsync", self.path, 0)
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        """The descriptor, to look at what was opened."""
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
    """A file that never changes its length, held open by one owner and written over.

    What is written is on the disk when `write` returns, in three quarters of the time of a synced append: no length, no
    place of a block and no journal of the file system has to be written with it.
    """

    path: Path
    size: int
    _descriptor: int
    _buffer: memoryview
    """At the start of a page, as the kernel wants it that is to pass its cache by."""

    @classmethod
    def create(cls, path: Path, size: int) -> "BlockFile":
        """A new file of *size* zeros, rounded up to whole blocks, that survives a power cut. Raises `OSError`.

        It has an exclusive `flock` before anybody sees it under its name, until it is closed.
        """
        size, draft = _round_up(size), _draft_of(path)
        descriptor = _create(draft, 0o600, None)
        try:
            try:
                # Really written: blocks that are only set aside would have to be noted as used at the first write.
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
        """Put *content* at *offset*, where a block begins; the rest of its last block is of what was written before.

        Return the bytes of these blocks. Raises `OSError`; any part of it may then be on the disk.
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
        """Close the descriptor, which ends the lock; writing afterwards is an error."""
        os.close(self._descriptor)
        self._buffer.release()


def restore_bytes(path: Path, pieces: Sequence[tuple[int, bytes]]) -> None:
    """Put *pieces* at their offsets in a file that has lost them, and return once all of it survives a power cut.

    Raises `OSError`; they can be put there again.
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
    """Return once the names in *directory* survive a power cut: without it, a crash can bring old ones back.

    Raises `OSError`.
    """
    if dir_fd is not None:
        _fsync(dir_fd, directory)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _fsync(descriptor, directory)
    finally:
        os.close(descriptor)


def frame_record(record: bytes) -> bytes:
    """The line of a JSON object that has members, and no newline in it: what to append to a log."""
    start = record[:-1]
    return b'\n%s,"crc":"%08x"}\n' % (start, zlib.crc32(start))


def check_record(line: bytes) -> None:
    """Raise `ValueError` unless *line*, without its newlines, is as `frame_record` made it."""
    start, tail = line[:-_CHECKSUM_SIZE], line[-_CHECKSUM_SIZE:]
    if tail != b',"crc":"%08x"}' % zlib.crc32(start):
        raise ValueError("the checksum is wrong")


def unframe_record(line: bytes) -> bytes:
    """The JSON object that `frame_record` made *line* of, which has its newlines no more. Raises `ValueError`."""
    check_record(line)
    return line[:-_CHECKSUM_SIZE] + b"}"


def _draft_of(path: Path) -> Path:
    # Short, so that a name as long as the file system allows can be replaced; counted, for several writers at once.
    return path.with_name(f".coterie-{os.getpid()}-{next(_drafts)}.draft")


def _create(draft: Path, mode: int | None, dir_fd: int | None) -> int:
    # Made with the mode it will have: one made readable for all and closed later could be opened in between.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if dir_fd is not None:
        _unlink(draft, dir_fd)  # left by a dead process that had our number; or a link that waits for us
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
        return os.open(path, flags)  # a file system that cannot pass the cache by


def _round_up(size: int) -> int:
    """The bytes of whole blocks that hold *size*."""
    return -(-size // BLOCK) * BLOCK


def _torn(written: int, size: int, path: Path) -> TornWrite:
    return TornWrite(errno.EIO, f"only {written} of {size} bytes were written; the disk may be full", str(path))


def _write_all(descriptor: int, content: bytes) -> int:
    # One call writes all of it on a local disk; the loop is for signals, quotas and writes over 2 GiB.
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(content)


def _fsync(descriptor: int, path: Path) -> None:
    _ask("fsync", path, 0)
    os.fsync(descriptor)
