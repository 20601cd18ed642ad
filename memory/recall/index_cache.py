"""SQLite file with the words of memory files, in the user's cache directory.

The cache is never the only copy of anything: it is not durable, and a damaged cache is deleted.
"""

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

VERSION = 1
"""Version of the tables and of the tokenizer; a cache of another version is deleted."""
BUSY = 5.0
"""Seconds that a process waits for another writer."""
PAGES = 32_768
"""SQLite page cache, in kilobytes."""
MAPPED = 256 * 1024 * 1024
"""Bytes of the file that are memory-mapped."""
MODE = 0o600

_OUTSIDE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
    }
)
_TABLES = """
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, modified INTEGER NOT NULL,
    size INTEGER NOT NULL, inode INTEGER NOT NULL, length INTEGER NOT NULL);
CREATE TABLE spread (word TEXT PRIMARY KEY, files INTEGER NOT NULL, uses INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE texts USING fts5(words, tokenize="ascii tokenchars '_'");
CREATE VIRTUAL TABLE places USING fts5vocab(texts, instance);
"""


def default_cache(directory: Path) -> Path:
    """Return the cache file of the store in *directory*, in the user's cache directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(directory)), digest_size=16).hexdigest()
    return parent / "coterie" / "recall" / f"{digest}.db"


def open_cache(path: Path | None) -> sqlite3.Connection:
    """Open or create the cache file *path*; falls back to memory, also for None.

    A damaged file or one of another version is replaced. Any thread may use the connection, one at a time. Blocks.
    """
    if path is None:
        return open_in_memory()
    try:
        return _open_file(path)
    except sqlite3.Error as exc:
        return _open_anew(path) if is_damage(exc) else open_in_memory()
    except OSError:
        return open_in_memory()


def is_damage(error: sqlite3.Error) -> bool:
    """True if the cache itself is damaged; False if it is locked, or the disk fails."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _OUTSIDE


def open_in_memory() -> sqlite3.Connection:
    """Open a private cache in memory."""
    return _prepare(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def discard_cache(path: Path) -> None:
    """Delete an unusable cache; processes that have it open keep their copy. Raises `OSError`."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def write_transaction(cache: sqlite3.Connection) -> Iterator[None]:
    """Commit all writes of the block, or none; one process at a time. Raises `sqlite3.Error`."""
    cache.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        cache.execute("ROLLBACK")
        raise
    cache.execute("COMMIT")


def _open_anew(path: Path) -> sqlite3.Connection:
    try:
        discard_cache(path)
        return _open_file(path)
    except (sqlite3.Error, OSError):
        return open_in_memory()


def _open_file(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_private(path)
    cache = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    try:
        cache.execute("PRAGMA journal_mode = WAL")
        cache.execute("PRAGMA synchronous = NORMAL")
        cache.execute(f"PRAGMA cache_size = -{PAGES}")
        cache.execute(f"PRAGMA mmap_size = {MAPPED}")
        return _prepare(cache)
    except BaseException:
        cache.close()
        raise


def _make_private(path: Path) -> None:
    """Create *path*, or check that it belongs to this user; SQLite's side files get the same permissions.

    An existing file is not opened, because closing it would release the locks that this process holds on it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a file of this user") from None
        if status.st_mode & 0o777 != MODE:
            path.chmod(MODE)


def _prepare(cache: sqlite3.Connection) -> sqlite3.Connection:
    if _version(cache) == 0:
        with write_transaction(cache):
            _make_tables(cache)
    if (version := _version(cache)) != VERSION:
        raise sqlite3.DatabaseError(f"the cache is of version {version}")
    return cache


def _make_tables(cache: sqlite3.Connection) -> None:
    """Create the tables unless another process has done so; a foreign database is left alone."""
    if not cache.execute("SELECT 1 FROM sqlite_master").fetchone():
        for statement in filter(str.strip, _TABLES.split(";")):
            cache.execute(statement)
        cache.execute(f"PRAGMA user_version = {VERSION}")


def _version(cache: sqlite3.Connection) -> int:
    version: int = cache.execute("PRAGMA user_version").fetchone()[0]
    return version
