"""The lock of a store's dreams; the time of its file is the time of the last dream."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import msgspec
from filelock import FileLock, Timeout

from coterie.clock import Clock
from coterie.files import replace_file
from coterie.memory.errors import DreamRefused
from coterie.process_identity import ProcessIdentity, process_start_timestamp, read_boot_id

LOCK = ".consolidate-lock"
"""In the directory of a store."""
VERSION = 1
ABANDONED = 3600.0
"""Seconds after which an owner counts as dead of whom nobody can say whether it is alive: it is of another machine, or
of an earlier start of this one."""
LOCK_TIMEOUT = 10.0


@attrs.frozen(kw_only=True)
class LockOwner(ProcessIdentity):
    """The process that dreams, of any machine that shares the store."""

    place: str
    """Which start of which machine, and which space of process numbers on it."""

    @classmethod
    def this(cls) -> "LockOwner":
        """The calling process."""
        this = ProcessIdentity.this()
        return cls(pid=this.pid, began=this.began, place=_place())

    @property
    def is_here(self) -> bool:
        """Whether its number means something where we are: if not, nobody can say whether it is alive."""
        return self.place == _place()


def _place() -> str:
    return f"{read_boot_id()} {Path('/proc/self/ns/pid').readlink()}"


@attrs.frozen(kw_only=True)
class _Body:
    """What the file says while somebody dreams."""

    owner: LockOwner
    before: float | None
    """The time of the file before; None if there was none."""


@attrs.frozen(kw_only=True)
class _LockFile:
    """The file as it is."""

    at: float
    body: _Body | int | None
    """A number is the process of a program that writes nothing else; None if nobody dreams."""

    def is_held(self, now: float) -> bool:
        """Whether somebody dreams."""
        if isinstance(self.body, int):
            began = process_start_timestamp(self.body)
            return began is not None and began <= self.at
        if self.body is None:
            return False
        if not self.body.owner.is_here:
            # A clock that was set back makes no dream last for ever.
            return abs(now - self.at) <= ABANDONED
        return self.body.owner.is_alive()


@attrs.frozen(kw_only=True)
class DreamLock:
    """The right to dream, until one of the two is called. Both block."""

    path: Path
    _body: _Body
    _clock: Clock

    def complete(self) -> None:
        """The dream is done, now. Raises `OSError`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _write(self.path, None, self._clock.now())

    def release(self) -> None:
        """There was no dream: the time is as it was before. Raises `OSError`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _restore(self.path, self._body)

    def _is_ours(self) -> bool:
        found = _read(self.path)
        return found is not None and found.body == self._body


def last_dream_time(directory: Path, clock: Clock) -> float | None:
    """When the memories in *directory* were last consolidated, or when somebody began who is at it; None for never.

    What a dream left that was killed is put back first. A time in the future, of a clock that was set back since,
    becomes now: it cannot keep dreams away for longer than a true one. Blocks. Raises `DreamRefused` and `OSError`.
    """
    path, now = directory / LOCK, clock.now()
    found = _read(path)
    if found is None or (found.body is None and found.at <= now):
        return None if found is None else found.at
    with _lock_changes(path):
        found = _reclaim(path, now)
        if found is not None and found.at > now:
            os.utime(path, (now, now), follow_symlinks=False)
            return now
    return None if found is None else found.at


def acquire_dream_lock(directory: Path, clock: Clock) -> DreamLock:
    """Be the one who dreams of *directory*, which is made if there is none.

    The lock of a dead owner is taken over, with the time that stood there before it. Blocks. Raises `DreamRefused` if
    another dream runs, and `OSError`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, now = directory / LOCK, clock.now()
    with _lock_changes(path):
        found = _reclaim(path, now)
        if found is not None and found.body is not None:
            raise DreamRefused(f"another dream of {directory} is under way")
        body = _Body(owner=LockOwner.this(), before=None if found is None else found.at)
        _write(path, body, now)
        # Where locks do not reach, as between machines that share a disk, the last to write has it.
        written = _read(path)
        if written is None or written.body != body:
            raise DreamRefused(f"another dream of {directory} has just begun")
    return DreamLock(path=path, body=body, clock=clock)


def _reclaim(path: Path, now: float) -> _LockFile | None:
    """The file as it is once a dead owner's is as it was before."""
    found = _read(path)
    if found is None or found.body is None or found.is_held(now):
        return found
    if isinstance(found.body, _Body):
        _restore(path, found.body)
    else:
        _write(path, None, found.at)  # what was before is not known
    return _read(path)


def _restore(path: Path, body: _Body) -> None:
    if body.before is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, None, body.before)


def _write(path: Path, body: _Body | None, at: float) -> None:
    facts = {} if body is None else msgspec.to_builtins(body)
    replace_file(path, msgspec.json.encode({"v": VERSION, **facts}) + b"\n", mode=0o600)
    os.utime(path, (at, at), follow_symlinks=False)


def _read(path: Path) -> _LockFile | None:
    """None if there is no file, or none of ours: a link is not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return _LockFile(at=os.fstat(descriptor).st_mtime, body=_parse(file.read(4096)))


def _parse(content: bytes) -> _Body | int | None:
    with contextlib.suppress(ValueError):
        facts = msgspec.json.decode(content)
        return facts if type(facts) is int else msgspec.convert(facts, _Body)
    return None


@contextlib.contextmanager
def _lock_changes(path: Path) -> Iterator[None]:
    """Nobody else writes the lock meanwhile."""
    try:
        with FileLock(f"{path}.guard", timeout=LOCK_TIMEOUT):
            yield
    except Timeout as exc:
        raise DreamRefused(f"{path} is being written by another process") from exc
