"""Record and lock of a session's root process, so that any process can check whether it is alive."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import msgspec
from filelock import FileLock, Timeout

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.files import replace_file
from coterie.paths import home_directory
from coterie.session_directory import SessionDirectory

VERSION = 1
ROOT_RECORD = "root.json"
"""In the directory of a session, from before its first process is started until only the janitor is left."""
LOCK_TIMEOUT = 10.0

_STATE, _BEGAN = 0, 19
"""In /proc/PID/stat, counted from the state, which stands behind the name."""
_ENDED = b"ZX"
"""The states of a process that has ended and was not reaped."""


@attrs.frozen(kw_only=True)
class RootIdentity:
    """One process, told from every other that had or will have its number."""

    pid: int
    began: int
    """Clock ticks from the start of the machine to that of the process."""
    boot: str
    """Which start of the machine that was."""
    started: float
    """The same in seconds since 1970, by the session's clock."""

    def is_alive(self) -> bool:
        """Whether this very process has not ended."""
        return self.boot == _boot() and process_start_time(self.pid) == self.began


def find_root(session: SessionDirectory) -> RootIdentity | None:
    """The root of *session*, if it is alive now."""
    return _read_living(session.directory / ROOT_RECORD)


@contextmanager
def hold_root_lock(session: SessionDirectory) -> Iterator[RootIdentity | None]:
    """The root of *session*, if it is alive now; if not, none can begin before the block ends.

    Blocks while one is beginning. Raises `ConfigInvalid` if that takes too long, and `OSError`.
    """
    root = find_root(session)
    if root is None:
        with _locked_record(session):
            if (root := find_root(session)) is None:
                yield None
                return
    yield root


def find_living_roots() -> dict[str, RootIdentity]:
    """The roots of all sessions that run now, by the session's id."""
    records = home_directory().glob(f"projects/*/sessions/*/{ROOT_RECORD}")
    return {path.parent.name: root for path in records if (root := _read_living(path)) is not None}


def has_dead_root(session: SessionDirectory) -> bool:
    """Whether the last root of *session* ended without a word: it was killed, or the machine was."""
    path = session.directory / ROOT_RECORD
    return path.exists() and _read_living(path) is None


def clear_stale_root(session: SessionDirectory) -> None:
    """Remove the record of a root that is no more. Call it within `hold_root_lock`. Raises `OSError`."""
    if has_dead_root(session):
        (session.directory / ROOT_RECORD).unlink()


@contextmanager
def open_root_record(session: SessionDirectory, clock: Clock) -> Iterator[RootIdentity]:
    """Be the root of *session* until the block ends. Enter it before any process of the session is started.

    The record of a root that was killed is replaced. Blocks for one small write. Raises `ConfigInvalid` while another
    process is the root, and `OSError`.
    """
    pid = os.getpid()
    began = process_start_time(pid)
    assert began is not None, "a process that asks is alive"
    ours = RootIdentity(pid=pid, began=began, boot=_boot(), started=clock.now())
    path = session.directory / ROOT_RECORD
    with _locked_record(session):
        if (other := find_root(session)) is not None:
            raise ConfigInvalid("session", f"{session.id} is at work in another process, {other.pid}")
        replace_file(path, msgspec.json.encode({"v": VERSION, **attrs.asdict(ours)}) + b"\n", mode=0o600)
    try:
        yield ours
    finally:
        remove_root_record(session, ours)


def remove_root_record(session: SessionDirectory, root: RootIdentity) -> None:
    """Remove the record of *root*, if it is still its: the directory may be gone, or another's by now."""
    path = session.directory / ROOT_RECORD
    if _read(path) == root:
        path.unlink(missing_ok=True)


def process_start_time(pid: int) -> int | None:
    """When the process *pid* began, in clock ticks since the machine was started; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in _ENDED else int(fields[_BEGAN])


@contextmanager
def _locked_record(session: SessionDirectory) -> Iterator[None]:
    """Nobody else writes or removes the record meanwhile."""
    lock = FileLock(session.directory / f"{ROOT_RECORD}.lock", thread_local=False, timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except Timeout as exc:
        raise ConfigInvalid("session", f"{session.id} is being taken up by another process") from exc
    try:
        yield
    finally:
        lock.release()


def _read_living(path: Path) -> RootIdentity | None:
    root = _read(path)
    return root if root is not None and root.is_alive() else None


def _read(path: Path) -> RootIdentity | None:
    """What the record says; None where there is none that can be read, by which nobody can be known again."""
    try:
        facts = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        return msgspec.convert(facts, RootIdentity) if facts.get("v") == VERSION else None
    except (FileNotFoundError, ValueError):
        return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
