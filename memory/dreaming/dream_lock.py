"""The lock that allows one dream at a time in a store, and the check whether a dream is due.

The mtime of the lock file is the time of the last dream.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import msgspec
from filelock import FileLock, Timeout

from coterie.clock import Clock
from coterie.files import replace_file
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DreamingSettings
from coterie.process_identity import ProcessIdentity, process_start_timestamp, read_boot_id

LOCK = ".consolidate-lock"
"""File name of the dream lock, in the directory of a memory store."""
VERSION = 1
ABANDONED = 3600.0
"""Seconds after which an owner counts as dead if this process cannot check it, because the owner runs on another
machine, in another PID namespace, or before a reboot.
"""
LOCK_TIMEOUT = 10.0


@attrs.frozen(kw_only=True)
class LockOwner(ProcessIdentity):
    """The process that dreams, on any machine that shares the store."""

    place: str
    """Identifies the machine, its boot and the PID namespace."""

    @classmethod
    def this(cls) -> "LockOwner":
        """Return the identity of the calling process."""
        this = ProcessIdentity.this()
        return cls(pid=this.pid, began=this.began, place=_place())

    @property
    def is_here(self) -> bool:
        """True if the owner's process id is valid here; otherwise this process cannot check if the owner is alive."""
        return self.place == _place()


def _place() -> str:
    return f"{read_boot_id()} {Path('/proc/self/ns/pid').readlink()}"


@attrs.frozen(kw_only=True)
class _Body:
    """Content of the lock file during a dream."""

    owner: LockOwner
    before: float | None
    """Time of the file before the dream; None if there was no file."""


@attrs.frozen(kw_only=True)
class _LockFile:
    """The lock file as read from disk."""

    at: float
    body: _Body | int | None
    """Owner of the lock, or the process id that other programs write; None if no dream is running."""

    def is_held(self, now: float) -> bool:
        """True if a dream is running."""
        if isinstance(self.body, int):
            began = process_start_timestamp(self.body)
            return began is not None and began <= self.at
        if self.body is None:
            return False
        if not self.body.owner.is_here:
            # The absolute difference limits the wait also after a clock was set back.
            return abs(now - self.at) <= ABANDONED
        return self.body.owner.is_alive()


@attrs.frozen(kw_only=True)
class DreamLock:
    """The held lock of a dream, until `complete` or `release` is called. Both block."""

    path: Path
    _body: _Body
    _clock: Clock

    def complete(self) -> None:
        """Record that the dream is complete, at the current time. Raises `OSError`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _write(self.path, None, self._clock.now())

    def release(self) -> None:
        """Release the lock without a dream, and restore the time of the last dream. Raises `OSError`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _restore(self.path, self._body)

    def _is_ours(self) -> bool:
        found = _read(self.path)
        return found is not None and found.body == self._body


def last_dream_time(directory: Path, clock: Clock) -> float | None:
    """Return the time of the last dream, or of the start of a running dream; None if there was no dream.

    First reclaims the lock of a dream that was killed. A time in the future, after a clock was set back, becomes the
    current time, so that it does not delay dreams longer than a true time. Blocks. Raises `DreamRefused` and `OSError`.
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
    """Acquire the dream lock of the store in *directory*, which is created if it does not exist.

    Takes over the lock of a dead owner, and keeps the time of the last complete dream. Blocks. Raises `DreamRefused` if
    another dream is running, and `OSError`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, now = directory / LOCK, clock.now()
    with _lock_changes(path):
        found = _reclaim(path, now)
        if found is not None and found.body is not None:
            raise DreamRefused(f"another dream of {directory} is already running; try again after its end")
        body = _Body(owner=LockOwner.this(), before=None if found is None else found.at)
        _write(path, body, now)
        # File locks may not work between machines that share a disk; then the last writer owns the lock.
        written = _read(path)
        if written is None or written.body != body:
            raise DreamRefused(f"another dream of {directory} has just started")
    return DreamLock(path=path, body=body, clock=clock)


def _reclaim(path: Path, now: float) -> _LockFile | None:
    """Return the lock file, after the lock of a dead owner was undone."""
    found = _read(path)
    if found is None or found.body is None or found.is_held(now):
        return found
    if isinstance(found.body, _Body):
        _restore(path, found.body)
    else:
        _write(path, None, found.at)  # the previous time is unknown
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
    """Read the lock file; return None if it is missing, unreadable or a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(descriptor)
    body: _Body | int | None = None
    with os.fdopen(descriptor, "rb") as file, contextlib.suppress(ValueError):
        facts = msgspec.json.decode(file.read(4096))
        body = facts if type(facts) is int else msgspec.convert(facts, _Body)
    return _LockFile(at=status.st_mtime, body=body)


@contextlib.contextmanager
def _lock_changes(path: Path) -> Iterator[None]:
    """Hold the file lock that protects changes of the dream lock."""
    try:
        with FileLock(f"{path}.guard", timeout=LOCK_TIMEOUT):
            yield
    except Timeout as exc:
        raise DreamRefused(f"{path} is being written by another process; try again") from exc


HOUR = 3600.0
MINUTE = 60.0


@attrs.frozen(kw_only=True)
class SessionActivity:
    """A session of the project, and the time of its last activity."""

    directory: Path
    at: float


@attrs.define(eq=False)
class DueCheck:
    """The conditions for a dream of one store; remembers the time of the last session scan.

    The lock against another running dream is not checked here, but acquired later.
    """

    directory: Path
    sessions: Callable[[], Sequence[SessionActivity]]
    """Function that lists the sessions of the project; blocks."""
    settings: DreamingSettings
    clock: Clock
    last: float | None = attrs.field(default=None, init=False)
    """Time of the last known dream; None if there was no dream."""
    _scanned: float | None = attrs.field(default=None, init=False)

    def reason_not_due(self) -> str | None:
        """Return one line with the reason why no dream is due; None if one is due.

        Blocks. Raises `DreamRefused` and `OSError`.
        """
        last = self.last = last_dream_time(self.directory, self.clock)
        now = self.clock.now()
        if last is not None and now - last < self.settings.hours * HOUR:
            return f"the last dream was {(now - last) / HOUR:.1f} hours ago; the minimum is {self.settings.hours:g}"
        if self._scanned is not None and 0 <= now - self._scanned < self.settings.scan_minutes * MINUTE:
            return f"the sessions were counted {(now - self._scanned) / MINUTE:.0f} minutes ago"
        self._scanned = now
        count = len(active_since(self.sessions(), last))
        if count < self.settings.sessions:
            return f"{count} sessions were touched since the last dream; {self.settings.sessions} are needed"
        return None


def active_since(sessions: Sequence[SessionActivity], last: float | None) -> list[SessionActivity]:
    """Return the *sessions* with activity after *last*, newest first; all sessions without *last*."""
    found = [session for session in sessions if last is None or session.at > last]
    return sorted(found, key=lambda session: session.at, reverse=True)
