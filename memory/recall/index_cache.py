"""Where the words of memory files are kept for searching: a SQLite file in the user's cache, which may be lost.

It is never the only copy of anything, so nothing here is durable, and what is damaged is thrown away.
"""

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

VERSION = 1
"""Of the tables and of the way words are made; a cache of another version is thrown away."""
BUSY = 5.0
"""Seconds that one process waits for another that writes."""
PAGES = 32_768
"""Kilobytes of the file that stay in memory once they were needed."""
MAPPED = 256 * 1024 * 1024
"""Bytes of the file that are read where they lie, without a copy."""
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
    """The cache file of the store in *directory*, in the user's cache directory."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(directory)), digest_size=16).hexdigest()
    return parent / "coterie" / "recall" / f"{digest}.db"


def open_cache(path: Path | None) -> sqlite3.Connection:
    """The cache in the file *path*, made if there is none; in memory if there can be none, or for None.

    A file of another version, or one that is damaged, is replaced. Any thread may use it, one at a time. Blocks.
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
    """Whether the cache itself is at fault, and not who has it locked, or the disk."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _OUTSIDE


def open_in_memory() -> sqlite3.Connection:
    """A cache that nobody else sees, and that is gone when it is closed."""
    return _prepare(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def discard_cache(path: Path) -> None:
    """Remove a cache that cannot be used; others that have it open go on with what they have. Raises `OSError`."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def write_transaction(cache: sqlite3.Connection) -> Iterator[None]:
    """All that the block writes, or nothing; one process at a time. Raises `sqlite3.Error`."""
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
    """Make *path*, or check that it is ours; what SQLite puts beside it has the same permissions.

    A file that is there is not opened: to close it again would end the locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is no file of this user") from None
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
    """Make them unless another process was quicker; what is not ours is left as it is."""
    if not cache.execute("SELECT 1 FROM sqlite_master").fetchone():
        for statement in filter(str.strip, _TABLES.split(";")):
            cache.execute(statement)
        cache.execute(f"PRAGMA user_version = {VERSION}")


def _version(cache: sqlite3.Connection) -> int:
    version: int = cache.execute("PRAGMA user_version").fetchone()[0]
    return version
