"""Record (file) and lock of a session's root process, by which any process can check if the root is alive."""

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
from coterie.process_identity import ProcessIdentity, read_boot_id
from coterie.session_directory import SessionDirectory

VERSION = 1
ROOT_RECORD = "root.json"
"""Name of the file in the session's directory that identifies the root process. It exists from before the first process
of the session starts until only the cleanup daemon remains, and after a kill of the root."""
LOCK_TIMEOUT = 10.0


@attrs.frozen(kw_only=True)
class RootIdentity(ProcessIdentity):
    """Process id, start time and boot of a session's root process: the content of the root record."""

    boot: str
    """Id of the machine's boot in which the process was started, as `read_boot_id` returns it."""
    started: float
    """Time at which the process became the root, in seconds since 1970, by the clock of the session."""

    def is_alive(self) -> bool:
        """True if the identified root process is running; False after its end or a reboot."""
        return self.boot == read_boot_id() and super().is_alive()


def find_root(session: SessionDirectory) -> RootIdentity | None:
    """Return the identity of the root process of *session* if the process is running, else None."""
    return _read_living(session.directory / ROOT_RECORD)


@contextmanager
def hold_root_lock(session: SessionDirectory) -> Iterator[RootIdentity | None]:
    """Yield the running root of *session*; or yield None, and let no root start before the block ends.

    Waits while a root is starting. Raises `ConfigInvalid` after `LOCK_TIMEOUT` seconds, and `OSError`.
    """
    root = find_root(session)
    if root is None:
        with _locked_record(session):
            if (root := find_root(session)) is None:
                yield None
                return
    yield root


def find_living_roots() -> dict[str, RootIdentity]:
    """Return the running root processes of all sessions below `COTERIE_HOME`, by session id."""
    records = home_directory().glob(f"projects/*/sessions/*/{ROOT_RECORD}")
    return {path.parent.name: root for path in records if (root := _read_living(path)) is not None}


def has_dead_root(session: SessionDirectory) -> bool:
    """True if *session* has a root record but no living root: the root was killed, or the machine stopped."""
    path = session.directory / ROOT_RECORD
    return path.exists() and _read_living(path) is None


def clear_stale_root(session: SessionDirectory) -> None:
    """Delete the root record of *session* if its process is dead. Call within `hold_root_lock`. Raises `OSError`."""
    if has_dead_root(session):
        (session.directory / ROOT_RECORD).unlink()


@contextmanager
def open_root_record(session: SessionDirectory, clock: Clock) -> Iterator[RootIdentity]:
    """Register this process as the root of *session*: write the root record, and delete it when the block ends.

    Enter it before any process of the session is started. The record of a killed root is replaced. Blocks for one small
    write. Raises `ConfigInvalid` if another process is the root, and `OSError`.
    """
    this = ProcessIdentity.this()
    ours = RootIdentity(pid=this.pid, began=this.began, boot=read_boot_id(), started=clock.now())
    path = session.directory / ROOT_RECORD
    with _locked_record(session):
        if (other := find_root(session)) is not None:
            raise ConfigInvalid(
                "session", f"{session.id} is already running in process {other.pid}; watch it with `coterie attach`"
            )
        replace_file(path, msgspec.json.encode({"v": VERSION, **attrs.asdict(ours)}) + b"\n", mode=0o600)
    try:
        yield ours
    finally:
        remove_root_record(session, ours)


def remove_root_record(session: SessionDirectory, root: RootIdentity) -> None:
    """Delete the root record of *session* if it is that of *root*. No-op for no record and for another root."""
    path = session.directory / ROOT_RECORD
    if _read(path) == root:
        path.unlink(missing_ok=True)


@contextmanager
def _locked_record(session: SessionDirectory) -> Iterator[None]:
    """Hold the lock for writing the root record within the block. Raises `ConfigInvalid` after `LOCK_TIMEOUT`."""
    lock = FileLock(session.directory / f"{ROOT_RECORD}.lock", thread_local=False, timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except Timeout as exc:
        raise ConfigInvalid(
            "session", f"{session.id} is being started or resumed by another process; try again later"
        ) from exc
    try:
        yield
    finally:
        lock.release()


def _read_living(path: Path) -> RootIdentity | None:
    root = _read(path)
    return root if root is not None and root.is_alive() else None


def _read(path: Path) -> RootIdentity | None:
    """Return the content of the root record *path*; None if it is missing, damaged or of another version."""
    try:
        facts = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        return msgspec.convert(facts, RootIdentity) if facts.get("v") == VERSION else None
    except (FileNotFoundError, ValueError):
        return None
