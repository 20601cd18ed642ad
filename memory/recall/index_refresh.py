"""Refresh of the search index: changed files are read again, deleted files are removed."""

import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from coterie.memory.recall.index_cache import write_transaction
from coterie.memory.recall.store_scan import ScannedFile, list_memories, open_memories, parse_entry_fast, read_head
from coterie.memory.recall.tokenizer import tokenize
from coterie.memory.store.confined_directory import ConfinedDirectory

INDEXED = 256 * 1024
"""Bytes of a file that are indexed."""
BATCH = 500
"""Number of files written in one transaction, so that other processes can write in between."""
BETWEEN = "  "
"""Two spaces between words, so that `text.count(" word ")` finds adjacent equal words."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class RefreshResult:
    """Number of files that a refresh added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        """Number of files that were read or removed."""
        return self.added + self.changed + self.removed


def refresh_cache(
    cache: sqlite3.Connection, directory: Path, between: Callable[[], object] = lambda: None
) -> RefreshResult:
    """Update *cache* from the files below *directory*; only files with another time, size or inode are read.

    Writes in batches: several processes can refresh concurrently, and an interrupted refresh keeps its finished part.
    Blocks, and calls *between* before each batch; its exceptions end the refresh. Raises `sqlite3.Error`.
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
    """Return the words of a file: of its name, description and text. An unreadable file has only its name."""
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
            _insert(cache, file, words)
            spread.update(set(words))
            uses.update(words)
        _count(cache, spread, uses)


def _insert(cache: sqlite3.Connection, file: ScannedFile, words: list[str]) -> None:
    insert = "INSERT INTO files (path, modified, size, inode, length) VALUES (?, ?, ?, ?, ?)"
    id_ = cache.execute(insert, (*file, len(words))).lastrowid
    cache.execute("INSERT INTO texts (rowid, words) VALUES (?, ?)", (id_, f" {BETWEEN.join(words)} "))


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


def _count(cache: sqlite3.Connection, spread: Counter[str], uses: Counter[str]) -> None:
    changes = ((word, files, uses[word]) for word, files in spread.items() if files or uses[word])
    cache.executemany(
        "INSERT INTO spread VALUES (?, ?, ?)"
        " ON CONFLICT (word) DO UPDATE SET files = files + excluded.files, uses = uses + excluded.uses",
        changes,
    )


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
