"""BM25 ranking (by word frequency) of memories for a query, over a search index that is refreshed from the files."""

import heapq
import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import attrs

from coterie.memory.recall.index_cache import (
    RefreshResult,
    default_cache,
    discard_cache,
    is_damage,
    open_cache,
    open_in_memory,
    refresh_cache,
)
from coterie.memory.recall.tokenizer import tokenize

K1 = 1.2
B = 0.75
"""`K1` and `B` are the usual BM25 parameters: saturation of repeated words, and penalty for long files."""
LOOKED_AT = 3_000
"""Maximum number of word occurrences that one query reads from the index of all files, so that queries stay fast."""
CANDIDATES = 60
"""Number of files, the best for the rare words of a query, in which its frequent words are counted."""
LONGEST_QUERY = 10_000
"""Maximum length of a query in characters; the text after it is ignored."""

REMEMBERED = 1_000
"""Maximum number of words whose lookup in the search index is cached; each takes at most about 50 kilobytes."""

T = TypeVar("T")
_Gains: TypeAlias = "tuple[array[int], array[float]]"  # in quotes: Python 3.11 cannot subscript an array
"""Result of the lookup of one word: the ids of the files that contain it, and its score in each, before its weight."""


@attrs.frozen(kw_only=True)
class RankedMemory:
    """A memory that matches a query, with its score."""

    path: str
    """Path of the memory file, relative to the directory of its store."""
    score: float
    """Relevance for the query: positive, higher is better. Scores of different queries cannot be compared."""


@attrs.frozen
class _QueryWord:
    """One word of a query that occurs in at least one indexed file."""

    word: str
    weight: float
    """Factor for scores of the word: higher for rare words, and for words that the query repeats."""
    uses: int
    """Number of occurrences of the word in all files together."""


@attrs.define(eq=False)
class Bm25Ranker:
    """Ranker of the memories of one store by the words of a query, without a model. Created by `open`.

    Methods block and serve one thread at a time. They know the files as of the last `refresh`. If the search index is
    lost, damaged, locked or full, the ranker creates a new one, in memory if its file cannot be used. In a large store
    a query looks up only its rarest words in all files, and counts the other words in the best files found so far. If
    even the rarest word is in too many files, only the files added last are looked up.
    """

    _directory: Path
    _path: Path
    _cache: sqlite3.Connection
    _total: int = attrs.field(default=0, init=False)
    """Number of indexed files."""
    _norms: Sequence[float] = attrs.field(default=(), init=False)
    """BM25 length normalization of each file, larger for longer files; the list index is the file id."""
    _once: Sequence[float] = attrs.field(default=(), init=False)
    """BM25 score of a word that occurs once in a file, before the weight of the word is applied, by file id."""
    _looked_up: dict[str, _Gains] = attrs.field(factory=dict, init=False)
    """Cache of lookups in the search index: files with a word and its score in each, before its weight, by word."""
    _version: int | None = attrs.field(default=None, init=False)
    """SQLite `data_version` at which `_norms` and the other cached values were computed; None if they are outdated."""

    @classmethod
    def open(cls, directory: Path, cache: Path | None = None) -> Self:
        """Return a ranker of the memories in *directory*; its index is the file *cache*, else one in `~/.cache`."""
        path = cache or default_cache(directory)
        return cls(directory, path, open_cache(path))

    def refresh(self, between: Callable[[], object] = lambda: None) -> RefreshResult:
        """Update the search index to the files on disk; return how many files were added, changed and removed.

        Calls *between* before each batch of files; an exception of *between* ends the refresh, but keeps finished
        batches. Raises `sqlite3.Error` if not even an index in memory can be written.
        """
        self._version = None
        try:
            return refresh_cache(self._cache, self._directory, between)
        except sqlite3.Error as exc:
            self._replace_cache(exc)
        return refresh_cache(self._cache, self._directory, between)

    def rank(self, query: str, k: int = 5) -> list[RankedMemory]:
        """Return the *k* memories that match *query* best, best first; fewer if fewer files contain any of its words.

        Any text is a query. If all words are stop words such as `the`, files with such a word in their name or
        description are returned, else the newest memories. Raises as `refresh` does.
        """
        query = query[:LONGEST_QUERY]
        words = tokenize(query)
        found = self._attempt(lambda: self._rank(words or tokenize(query, stop_words=True), k))
        return found if found or words else self._attempt(lambda: self._newest(k))

    def close(self) -> None:
        """Close the database connection of the search index; the ranker cannot be used afterwards."""
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, work: Callable[[], T]) -> T:
        """Return the result of *work*; if its SQLite query fails, open a new index, refresh it and repeat *work*."""
        try:
            return work()
        except sqlite3.Error as exc:
            self._replace_cache(exc)
        self.refresh()
        return work()

    def _replace_cache(self, error: sqlite3.Error) -> None:
        """Open a new index after *error*: in its file if that was damaged, else in memory. May raise *error* again."""
        if isinstance(error, sqlite3.ProgrammingError):
            raise error
        self._cache.close()
        if is_damage(error):
            with suppress(OSError):  # open_cache then falls back to memory
                discard_cache(self._path)
            self._cache = open_cache(self._path)
        else:
            self._cache = open_in_memory()

    def _rank(self, words: Sequence[str], k: int) -> list[RankedMemory]:
        # One read transaction, because other processes may add files.
        self._cache.execute("BEGIN")
        try:
            self._load_norms()
            looked_up, left = self._split(self._known_words(words))
            scores: dict[int, float] = {}
            for word in looked_up:
                weight, score = word.weight, scores.get
                for file, gain in zip(*self._gains(word), strict=True):
                    scores[file] = score(file, 0.0) + weight * gain
            best = heapq.nlargest(max(k, CANDIDATES) if left else k, scores, key=scores.__getitem__)
            if left:
                counted = 0.0 if looked_up[0] in left else 1.0
                scores = {file: counted * scores[file] + rest for file, rest in self._rest(best, left)}
                best = heapq.nlargest(k, scores, key=scores.__getitem__)
            rows = self._cache.execute(f"SELECT id, path FROM files WHERE id IN {_marks(best)}", best)  # noqa: S608
            paths = dict(rows)
            return [RankedMemory(path=paths[file], score=scores[file]) for file in best if file in paths]
        finally:
            self._cache.execute("COMMIT")

    def _known_words(self, words: Sequence[str]) -> list[_QueryWord]:
        """Return the different query *words* that occur in some file, with their weights, the rarest first."""
        counts = Counter(words)
        known = self._cache.execute(
            f"SELECT word, files, uses FROM spread WHERE word IN {_marks(counts)} AND files > 0",  # noqa: S608
            list(counts),
        )
        found = []
        for word, files, uses in known:
            # The inverse document frequency of BM25.
            rarity = math.log(1 + (max(self._total, files) - files + 0.5) / (files + 0.5))
            found.append(_QueryWord(word, counts[word] * rarity, uses))
        return sorted(found, key=lambda word: (word.uses, word.word))

    def _split(self, words: Sequence[_QueryWord]) -> tuple[Sequence[_QueryWord], Sequence[_QueryWord]]:
        """Divide *words*, rarest first, into those to look up in all files and those to count only in the best files.

        The first part has at least one word; if that word has too many occurrences, it is in both parts.
        """
        uses = 0
        for length, word in enumerate(words):
            uses += word.uses
            if uses > LOOKED_AT:
                return words[: max(1, length)], words[length:]
        return words, ()

    def _gains(self, word: _QueryWord) -> _Gains:
        if word.word not in self._looked_up:
            if len(self._looked_up) >= REMEMBERED:
                self._looked_up.clear()
            places, once, norms = self._places(word), self._once, self._norms
            # Most words occur once in a file; that score is precomputed.
            gains = [
                once[file] if count == 1 else count * (K1 + 1) / (count + norms[file]) for file, count in places.items()
            ]
            self._looked_up[word.word] = array("q", places), array("d", gains)
        return self._looked_up[word.word]

    def _places(self, word: _QueryWord) -> Counter[int]:
        """Count the occurrences of *word* by file id; for a very frequent word, only 1 for each of the newest files."""
        if word.uses > LOOKED_AT:
            rows = self._cache.execute(
                "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?",
                (f'"{word.word}"', LOOKED_AT),
            )
        else:
            rows = self._cache.execute("SELECT doc FROM places WHERE term = ?", (word.word,))
        return Counter(chain.from_iterable(rows))

    def _rest(self, files: Sequence[int], left: Sequence[_QueryWord]) -> Iterator[tuple[int, float]]:
        """Yield the id of each of *files* and the score that the words *left*, not looked up so far, add to it."""
        # Read from FTS5's content table: single-row queries of the virtual table take three times as long.
        rows = self._cache.execute(f"SELECT id, c0 FROM texts_content WHERE id IN {_marks(files)}", files)  # noqa: S608
        for file, text in rows:
            norm = self._norms[file]
            counts = ((word.weight, text.count(f" {word.word} ")) for word in left)
            yield file, sum(weight * (K1 + 1) * count / (count + norm) for weight, count in counts if count)

    def _newest(self, k: int) -> list[RankedMemory]:
        rows = self._cache.execute("SELECT path FROM files ORDER BY modified DESC, path LIMIT ?", (k,))
        return [RankedMemory(path=path, score=1 / place) for place, (path,) in enumerate(rows, 1)]

    def _load_norms(self) -> None:
        (version,) = self._cache.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        lengths = dict(self._cache.execute("SELECT id, length FROM files"))
        self._looked_up.clear()
        average = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        self._total = len(lengths)
        # Lists are faster than dicts here, and almost all ids up to the last are in use.
        norms = [K1] * (max(lengths, default=0) + 1)
        for file, length in lengths.items():
            norms[file] = K1 * (1 - B + B * length / average)
        self._norms, self._once = norms, [(K1 + 1) / (1 + norm) for norm in norms]
        self._version = version


def _marks(values: Sized) -> str:
    """Return SQL placeholders, such as `(?,?)`, for *values*, so that values are never part of the SQL text."""
    return f"({','.join('?' * len(values))})"
