"""The lock that allows one dream (consolidation of memories) at a time in a store, and the check if a dream is due.

The modification time of the lock file is the time of the last dream.
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
"""Name of the lock file in the directory of a memory store; its modification time is the time of the last dream."""
VERSION = 1
ABANDONED = 3600.0
"""Age in seconds from which a lock counts as abandoned if this process cannot check its owner, because the owner runs
on another machine, in another PID namespace, or ran before a reboot.
"""
LOCK_TIMEOUT = 10.0


@attrs.frozen(kw_only=True)
class LockOwner(ProcessIdentity):
    """Identity of the process that holds the lock for a dream (memory consolidation), unique across machines."""

    place: str
    """Boot id of the machine and PID namespace of the process; process ids can be compared only within one place."""

    @classmethod
    def this(cls) -> "LockOwner":
        """Return the identity of the calling process, to be written into the dream lock."""
        this = ProcessIdentity.this()
        return cls(pid=this.pid, began=this.began, place=_place())

    @property
    def is_here(self) -> bool:
        """True if the owner has the same `place` as this process, which can then check if the owner is alive."""
        return self.place == _place()


def _place() -> str:
    return f"{read_boot_id()} {Path('/proc/self/ns/pid').readlink()}"


@attrs.frozen(kw_only=True)
class _Body:
    """JSON content of the dream lock file while a dream runs."""

    owner: LockOwner
    before: float | None
    """Modification time of the lock file before this dream, restored if the dream fails; None if there was no file."""


@attrs.frozen(kw_only=True)
class _LockFile:
    """Modification time and content of the dream lock file, as read from disk."""

    at: float
    body: _Body | int | None
    """Content during a dream; only a process id if another program wrote the file; None if no dream is running."""

    def is_held(self, now: float) -> bool:
        """True if a dream runs: its process is alive, or cannot be checked and wrote the lock less than an hour ago."""
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
    """The lock for one dream (memory consolidation) of a store, held until `complete` or `release`. Both block."""

    path: Path
    _body: _Body
    _clock: Clock

    def complete(self) -> None:
        """Release the lock if still held; set the time of the last dream to now. Raises `OSError`, `DreamRefused`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _write(self.path, None, self._clock.now())

    def release(self) -> None:
        """Release the lock of a failed dream and restore the time of the previous dream; no effect after `complete`."""
        with _lock_changes(self.path):
            if self._is_ours():
                _restore(self.path, self._body)

    def _is_ours(self) -> bool:
        found = _read(self.path)
        return found is not None and found.body == self._body


def last_dream_time(directory: Path, clock: Clock) -> float | None:
    """Return the time of the last dream (memory consolidation) of the store *directory*; None if there was no dream.

    If a dream is running, returns its start. First resets the lock of a dream that was killed. A time in the future,
    after a clock was set back, is replaced by the current time, also in the file, so that it does not delay the next
    dream. Blocks. Raises `DreamRefused` and `OSError`.
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
    """Acquire the lock for a dream (memory consolidation) of the store *directory*, which is created if it is missing.

    Takes over the lock of a process that has died, and keeps the time of the last complete dream. Blocks on the disk.
    Raises `OSError`, and `DreamRefused` if another dream is running; does not wait for its end.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, now = directory / LOCK, clock.now()
    with _lock_changes(path):
        found = _reclaim(path, now)
        if found is not None and found.body is not None:
            raise DreamRefused(f"another dream of the memories in {directory} is running; try again when it has ended")
        body = _Body(owner=LockOwner.this(), before=None if found is None else found.at)
        _write(path, body, now)
        # File locks may not work between machines that share a disk; then the last writer owns the lock.
        written = _read(path)
        if written is None or written.body != body:
            raise DreamRefused(f"another dream of the memories in {directory} just began; try again when it has ended")
    return DreamLock(path=path, body=body, clock=clock)


def _reclaim(path: Path, now: float) -> _LockFile | None:
    """Read the dream lock file; if the process that holds the lock has died, first release it as for a failed dream."""
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
    """Read and parse the dream lock file *path*; return None if it is missing, unreadable or a link."""
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
    """Hold an OS lock on `PATH.guard` while the block changes the dream lock *path*. `DreamRefused` after a timeout."""
    try:
        with FileLock(f"{path}.guard", timeout=LOCK_TIMEOUT):
            yield
    except Timeout as exc:
        raise DreamRefused(f"{path} was locked by another process for {LOCK_TIMEOUT:g} seconds; try again") from exc


HOUR = 3600.0
MINUTE = 60.0


@attrs.frozen(kw_only=True)
class SessionActivity:
    """One session of a project: its directory, and the time of its last activity in seconds since the epoch."""

    directory: Path
    at: float


@attrs.define(eq=False)
class DueCheck:
    """Check if a dream (memory consolidation) of one store is due; remembers when it last listed the sessions.

    It does not check if another dream is running: `acquire_dream_lock` does that later.
    """

    directory: Path
    sessions: Callable[[], Sequence[SessionActivity]]
    """Function that lists the sessions of the project with the time of their last activity; blocks."""
    settings: DreamingSettings
    clock: Clock
    last: float | None = attrs.field(default=None, init=False)
    """Time of the last dream, as the last call of `reason_not_due` found it; None if there was no dream or no call."""
    _scanned: float | None = attrs.field(default=None, init=False)

    def reason_not_due(self) -> str | None:
        """Return the reason why no dream is due, as one line for the user; None if a dream is due.

        A dream is due after enough hours with enough active sessions. Blocks. Raises `DreamRefused` and `OSError`.
        """
        last = self.last = last_dream_time(self.directory, self.clock)
        now = self.clock.now()
        if last is not None and now - last < self.settings.hours * HOUR:
            hours = (now - last) / HOUR
            return f"the last dream was {hours:.1f} hours ago; the next is due {self.settings.hours:g} hours after it"
        if self._scanned is not None and 0 <= now - self._scanned < self.settings.scan_minutes * MINUTE:
            return f"sessions were last counted {(now - self._scanned) / MINUTE:.0f} minutes ago; try again later"
        self._scanned = now
        count = len(active_since(self.sessions(), last))
        if count < self.settings.sessions:
            return f"{count} sessions were active since the last dream; wait until there are {self.settings.sessions}"
        return None


def active_since(sessions: Sequence[SessionActivity], last: float | None) -> list[SessionActivity]:
    """Return the *sessions* with activity after the time *last*, newest first; all *sessions* if *last* is None."""
    found = [session for session in sessions if last is None or session.at > last]
    return sorted(found, key=lambda session: session.at, reverse=True)
