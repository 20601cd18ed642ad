"""BM25 ranking of memories over an index that follows the files."""

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

from coterie.memory.recall.index_cache import default_cache, discard_cache, is_damage, open_cache, open_in_memory
from coterie.memory.recall.index_refresh import RefreshResult, refresh_cache
from coterie.memory.recall.tokenizer import tokenize

K1 = 1.2
B = 0.75
"""The usual numbers of BM25: how soon a word that comes again says nothing new, how much long files are held back."""
LOOKED_AT = 3_000
"""Places of words that a query looks at: what keeps it quick in a store of any size."""
CANDIDATES = 60
"""Files for which the words count that are in too many files to be looked up."""
LONGEST_QUERY = 10_000
"""Characters; of a longer one the beginning is looked for."""

REMEMBERED = 1_000
"""Words that need not be looked up again; each takes some kilobytes at most."""

T = TypeVar("T")
_Gains: TypeAlias = "tuple[array[int], array[float]]"  # in quotes: Python 3.11 cannot subscript an array
"""Files, and what a word that they have gains each of them."""


@attrs.frozen(kw_only=True)
class RankedMemory:
    """A memory that has something to do with a query."""

    path: str
    """Relative to the store."""
    score: float
    """Positive; higher is better. Scores of different queries say nothing of each other."""


@attrs.frozen
class _Wanted:
    """A word of a query that some file has."""

    word: str
    weight: float
    """The rarer, and the oftener in the query, the more."""
    uses: int
    """In all files together."""


@attrs.define(eq=False)
class Bm25Ranker:
    """Finds memories by their words, without a model. Made by `open`; blocks, and serves one thread at a time.

    The files count as they were at the last `refresh`. Its cache may be lost, damaged, locked or full at any time: then
    there is a new one, in memory if it cannot be a file. In a large store a query looks only at its rarest words in all
    files, and at the others in the best of what these give; where even its rarest word is in too many files, at those
    that were added last.
    """

    _directory: Path
    _path: Path
    _cache: sqlite3.Connection
    _total: int = attrs.field(default=0, init=False)
    """Files."""
    _norms: Sequence[float] = attrs.field(default=(), init=False)
    """By file: what its length does to the weight of its words."""
    _once: Sequence[float] = attrs.field(default=(), init=False)
    """By file: what a word gains it that it has once."""
    _looked_up: dict[str, _Gains] = attrs.field(factory=dict, init=False)
    """By word: what was looked up already."""
    _version: int | None = attrs.field(default=None, init=False)
    """Of the cache, when these were made of it; others may write to it."""

    @classmethod
    def open(cls, directory: Path, cache: Path | None = None) -> Self:
        """A ranker of the memories below *directory*, with its index in the file *cache*, else in the user's cache."""
        path = cache or default_cache(directory)
        return cls(directory, path, open_cache(path))

    def refresh(self, between: Callable[[], object] = lambda: None) -> RefreshResult:
        """Look at all files, and read those that have changed, calling *between* now and then.

        What *between* raises ends it; what is done stays done. Raises `sqlite3.Error` if there is no room in memory.
        """
        self._version = None
        try:
            return refresh_cache(self._cache, self._directory, between)
        except sqlite3.Error as exc:
            self._replace_cache(exc)
        return refresh_cache(self._cache, self._directory, between)

    def rank(self, query: str, k: int = 5) -> list[RankedMemory]:
        """The *k* memories that fit *query* best, the best first; fewer if fewer have any of its words.

        Any text is a query. One without words that mean something gives what is called so, else the newest memories.
        Raises as `refresh` does.
        """
        query = query[:LONGEST_QUERY]
        words = tokenize(query)
        found = self._attempt(lambda: self._rank_at_once(words or tokenize(query, stop_words=True), k))
        return found if found or words else self._attempt(lambda: self._newest(k))

    def close(self) -> None:
        """Let go of the cache; using it afterwards is an error."""
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attempt(self, work: Callable[[], T]) -> T:
        """The result of *work*; if the cache cannot be used for it, with another one that knows all files."""
        try:
            return work()
        except sqlite3.Error as exc:
            self._replace_cache(exc)
        self.refresh()
        return work()

    def _replace_cache(self, error: sqlite3.Error) -> None:
        """Another cache, empty or what another process has made of it. Raises *error* if that is a mistake of ours."""
        if isinstance(error, sqlite3.ProgrammingError):
            raise error
        self._cache.close()
        if is_damage(error):
            with suppress(OSError):  # then it cannot be opened either, and there is one in memory
                discard_cache(self._path)
            self._cache = open_cache(self._path)
        else:
            self._cache = open_in_memory()

    def _rank_at_once(self, words: Sequence[str], k: int) -> list[RankedMemory]:
        """As `_rank`, with the cache as it is at one moment: others may add files meanwhile."""
        self._cache.execute("BEGIN")
        try:
            return self._rank(words, k)
        finally:
            self._cache.execute("COMMIT")

    def _rank(self, words: Sequence[str], k: int) -> list[RankedMemory]:
        self._load_norms()
        looked_up, left = self._split(self._wanted(words))
        scores: dict[int, float] = {}
        for wanted in looked_up:
            self._look_up(wanted, scores)
        best = heapq.nlargest(max(k, CANDIDATES) if left else k, scores, key=scores.__getitem__)
        if left:
            counted = 0.0 if looked_up[0] in left else 1.0
            scores = {file: counted * scores[file] + rest for file, rest in self._rest(best, left)}
            best = heapq.nlargest(k, scores, key=scores.__getitem__)
        paths = dict(self._cache.execute(f"SELECT id, path FROM files WHERE id IN {_marks(best)}", best))  # noqa: S608
        return [RankedMemory(path=paths[file], score=scores[file]) for file in best if file in paths]

    def _wanted(self, words: Sequence[str]) -> list[_Wanted]:
        """Those of *words* that are in some file, the rarest first."""
        counts = Counter(words)
        known = self._cache.execute(
            f"SELECT word, files, uses FROM spread WHERE word IN {_marks(counts)} AND files > 0",  # noqa: S608
            list(counts),
        )
        found = [_Wanted(word, counts[word] * _rarity(self._total, files), uses) for word, files, uses in known]
        return sorted(found, key=lambda wanted: (wanted.uses, wanted.word))

    def _split(self, wanted: Sequence[_Wanted]) -> tuple[Sequence[_Wanted], Sequence[_Wanted]]:
        """The words to look up in all files, one at least, and those to count in the best of what these give.

        Even the rarest may be in too many places: then it is among both.
        """
        uses = 0
        for length, word in enumerate(wanted):
            uses += word.uses
            if uses > LOOKED_AT:
                return wanted[: max(1, length)], wanted[length:]
        return wanted, ()

    def _look_up(self, wanted: _Wanted, scores: dict[int, float]) -> None:
        """Add to *scores* what a word says for each file that has it."""
        weight, score = wanted.weight, scores.get
        for file, gain in zip(*self._gains(wanted), strict=True):
            scores[file] = score(file, 0.0) + weight * gain

    def _gains(self, wanted: _Wanted) -> _Gains:
        if wanted.word not in self._looked_up:
            if len(self._looked_up) >= REMEMBERED:
                self._looked_up.clear()
            places, once, norms = self._places(wanted), self._once, self._norms
            # Most words are once in a file, and what that gains is known.
            gains = [
                once[file] if count == 1 else count * (K1 + 1) / (count + norms[file]) for file, count in places.items()
            ]
            self._looked_up[wanted.word] = array("q", places), array("d", gains)
        return self._looked_up[wanted.word]

    def _places(self, wanted: _Wanted) -> Counter[int]:
        """How often a word is in which file."""
        if wanted.uses > LOOKED_AT:
            rows = self._cache.execute(
                "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?",
                (f'"{wanted.word}"', LOOKED_AT),
            )
        else:
            rows = self._cache.execute("SELECT doc FROM places WHERE term = ?", (wanted.word,))
        return Counter(chain.from_iterable(rows))

    def _rest(self, files: Sequence[int], left: Sequence[_Wanted]) -> Iterator[tuple[int, float]]:
        """What the words that were not looked up add to the scores of *files*."""
        # From the table that FTS5 keeps the text in: asking itself for one row after another takes three times as long.
        rows = self._cache.execute(f"SELECT id, c0 FROM texts_content WHERE id IN {_marks(files)}", files)  # noqa: S608
        for file, text in rows:
            norm = self._norms[file]
            counts = ((wanted.weight, text.count(f" {wanted.word} ")) for wanted in left)
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
        # Lists, as most numbers up to the last are in use: a query looks at thousands of them.
        norms = [K1] * (max(lengths, default=0) + 1)
        for file, length in lengths.items():
            norms[file] = K1 * (1 - B + B * length / average)
        self._norms, self._once = norms, [(K1 + 1) / (1 + norm) for norm in norms]
        self._version = version


def rank_memories(directory: Path, query: str, k: int = 5) -> list[RankedMemory]:
    """The memories below *directory* that fit *query* best, as they are now. Blocks; raises as `Bm25Ranker` does."""
    with Bm25Ranker.open(directory) as ranker:
        ranker.refresh()
        return ranker.rank(query, k)


def _rarity(total: int, files: int) -> float:
    """What a word says about a file that has it, if *files* of *total* do."""
    return math.log(1 + (max(total, files) - files + 0.5) / (files + 0.5))


def _marks(values: Sized) -> str:
    """Question marks for so many values: no value is ever part of a statement."""
    return f"({','.join('?' * len(values))})"
