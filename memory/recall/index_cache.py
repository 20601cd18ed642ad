"""Search index of memory files: a SQLite file in the user's cache directory, and its update from the files.

All of its data comes from the memory files: it is not durable, and a damaged index is deleted and created again.
"""

import contextlib
import hashlib
import itertools
import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from coterie.memory.recall.store_scan import ScannedFile, list_memories, open_memories, parse_entry_fast, read_head
from coterie.memory.recall.tokenizer import tokenize
from coterie.memory.store.confined_directory import ConfinedDirectory

VERSION = 1
"""Version of the tables and of the tokenizer; an index file of another version is deleted and created again."""
BUSY = 5.0
"""Maximum seconds for which a process waits while another one writes to the index file."""
PAGES = 32_768
"""Maximum size of SQLite's page cache in memory, in kilobytes."""
MAPPED = 256 * 1024 * 1024
"""Maximum number of bytes of the index file that SQLite maps into memory."""
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
    """Return the path of the index file for the store in *directory*, below `$XDG_CACHE_HOME` or `~/.cache`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(directory)), digest_size=16).hexdigest()
    return parent / "coterie" / "recall" / f"{digest}.db"


def open_cache(path: Path) -> sqlite3.Connection:
    """Open or create the index file *path*; if that fails, return an empty index in memory.

    A damaged file, or one of another version, is replaced. Any thread may use the connection, one at a time. Blocks.
    """
    with contextlib.suppress(sqlite3.Error, OSError):
        try:
            return _open_file(path)
        except sqlite3.Error as exc:
            if not is_damage(exc):
                raise
        discard_cache(path)
        return _open_file(path)
    return open_in_memory()


def is_damage(error: sqlite3.Error) -> bool:
    """True if *error* means that the index file is damaged; False if it is locked, or the disk or memory failed."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _OUTSIDE


def open_in_memory() -> sqlite3.Connection:
    """Return an empty search index that exists only in memory; it replaces a file that cannot be used."""
    return _prepare(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def discard_cache(path: Path) -> None:
    """Delete the index file *path*; processes that have it open can go on using the deleted file. Raises `OSError`."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def write_transaction(cache: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one write transaction: all its writes or, if it raises, none. Raises `sqlite3.Error`."""
    cache.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        cache.execute("ROLLBACK")
        raise
    cache.execute("COMMIT")


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
    """Create the index file *path* for this user only, or check that it is a file of this user and set its permissions.

    An existing file is not opened, because closing it would release this process's locks. Raises `PermissionError`.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a regular file of this user; delete it") from None
        if status.st_mode & 0o777 != MODE:
            path.chmod(MODE)


def _prepare(cache: sqlite3.Connection) -> sqlite3.Connection:
    if _version(cache) == 0:
        with write_transaction(cache):
            # Another process may have created the tables, and a foreign database is left alone.
            if not cache.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in filter(str.strip, _TABLES.split(";")):
                    cache.execute(statement)
                cache.execute(f"PRAGMA user_version = {VERSION}")
    if (version := _version(cache)) != VERSION:
        raise sqlite3.DatabaseError(f"the search index of memories has version {version}, not {VERSION}; it is rebuilt")
    return cache


def _version(cache: sqlite3.Connection) -> int:
    version: int = cache.execute("PRAGMA user_version").fetchone()[0]
    return version


INDEXED = 256 * 1024
"""Number of bytes at the start of a memory file that are indexed; later text is not searched."""
BATCH = 500
"""Number of files that are indexed in one transaction, so that other processes can write between two."""
BETWEEN = "  "
"""Separator of the words of an indexed text: two spaces, so that `text.count(" word ")` also counts repetitions."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class RefreshResult:
    """Numbers of memory files that a refresh of the search index added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def refresh_cache(
    cache: sqlite3.Connection, directory: Path, between: Callable[[], object] = lambda: None
) -> RefreshResult:
    """Update the search index *cache* from the files below *directory*; read only files with a new time, size or inode.

    Writes in batches: several processes can refresh concurrently, and an interrupted refresh keeps its finished part.
    Blocks. Calls *between* before each batch of files; its exceptions end the refresh. Raises `sqlite3.Error`.
    """
    files = set(list_memories(directory))
    known = set(cache.execute("SELECT path, modified, size, inode FROM files"))
    fresh, old = files - known, {path for path, *_ in known - files}
    changed = {file.path for file in fresh} & old
    with open_memories(directory) as memories:
        for batch in _batches(sorted(fresh) if memories else ()):
            assert memories is not None
            between()
            _write(cache, [(file, _tokens_of_file(memories, file.path)) for file in batch], ())
    for gone in _batches(sorted(old - changed)):
        _write(cache, (), gone)
    return RefreshResult(added=len(fresh) - len(changed), changed=len(changed), removed=len(old) - len(changed))


def _tokens_of_file(memories: ConfinedDirectory, path: str) -> list[str]:
    """Return the words to index for the file *path*: of its name, description and text; only its name if unreadable."""
    topic = parse_entry_fast(read_head(memories, path, INDEXED) or b"", path)
    # A query of stop words only can then match names.
    return [*tokenize(f"{topic.name}\n{topic.description}", stop_words=True), *tokenize(topic.body)]


def _write(cache: sqlite3.Connection, texts: Sequence[tuple[ScannedFile, list[str]]], gone: Iterable[str]) -> None:
    spread: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    with write_transaction(cache):
        for path in itertools.chain((file.path for file, _ in texts), gone):
            _remove(cache, path, spread, uses)
        for file, words in texts:
            insert = "INSERT INTO files (path, modified, size, inode, length) VALUES (?, ?, ?, ?, ?)"
            id_ = cache.execute(insert, (*file, len(words))).lastrowid
            cache.execute("INSERT INTO texts (rowid, words) VALUES (?, ?)", (id_, f" {BETWEEN.join(words)} "))
            spread.update(set(words))
            uses.update(words)
        cache.executemany(
            "INSERT INTO spread VALUES (?, ?, ?)"
            " ON CONFLICT (word) DO UPDATE SET files = files + excluded.files, uses = uses + excluded.uses",
            ((word, files, uses[word]) for word, files in spread.items() if files or uses[word]),
        )


def _remove(cache: sqlite3.Connection, path: str, spread: Counter[str], uses: Counter[str]) -> None:
    found = cache.execute(
        "SELECT files.id, texts.words FROM files JOIN texts ON texts.rowid = files.id WHERE path = ?", (path,)
    ).fetchone()
    if found is None:
        return
    id_, text = found
    words = text.split()
    spread.subtract(set(words))
    uses.subtract(words)
    cache.execute("DELETE FROM texts WHERE rowid = ?", (id_,))
    cache.execute("DELETE FROM files WHERE id = ?", (id_,))


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
