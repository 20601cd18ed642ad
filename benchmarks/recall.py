"""Quality of local recall compared with plain BM25, and its speed in a large store.

The questions are real ones about real chats (LongMemEval); the large store consists of words of the same chats.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from benchmarks.figures import Figure, at_least, at_most, rows
from benchmarks.recall_corpus import DATA, Corpus, Question, load_corpora, write_large_store
from benchmarks.recall_peers import PlainBm25, simple_tokens
from coterie.memory.recall.bm25 import Bm25Ranker
from coterie.memory.recall.store_scan import scan_newest
from coterie.memory.recall.tokenizer import tokenize

LARGE = 20_000
SCANNED = 200
ROUNDS = 20

T = TypeVar("T")
Rank = Callable[[str], list[str]]


async def measure() -> list[Figure]:
    """Share of answers among the first five results; then milliseconds in a store of many files."""
    return await trio.to_thread.run_sync(_measure)


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return the figures, followed by each question with missing answers."""
    losses = [figure for figure in figures if figure.unit == "lost"]
    yield from rows([figure for figure in figures if figure.unit != "lost"])
    for figure in losses:
        yield f"  {figure.value:.0%} of the answers lost: {figure.name}"


def _measure() -> list[Figure]:
    corpora = load_corpora()
    if not corpora:
        return [Figure(name=f"skipped: {DATA} is not there", value=0, unit="")]
    with tempfile.TemporaryDirectory() as directory:
        return [*_quality(corpora, Path(directory)), *_speed(corpora, Path(directory))]


@attrs.define(eq=False)
class _Found:
    """Results of one kind of recall over all questions."""

    shares: list[float] = attrs.field(factory=list)
    losses: list[tuple[Question, float]] = attrs.field(factory=list)

    @property
    def share(self) -> float:
        return 100 * statistics.fmean(self.shares)

    def ask(self, question: Question, rank: Rank) -> None:
        share = question.found(rank(question.query))
        self.shares.append(share)
        if share < 1:
            self.losses.append((question, 1 - share))


def _quality(corpora: Sequence[Corpus], directory: Path) -> list[Figure]:
    found = {name: _Found() for name in ("ours", "same words", "simple words", "descriptions", "newest five")}
    for number, corpus in enumerate(corpora):
        store = directory / f"store-{number}"
        store.mkdir()
        for memory in corpus.memories:
            memory.write(store)
        with Bm25Ranker.open(store, directory / f"{number}.db") as ranker:
            ranker.refresh()
            for name, rank in _ways(corpus, ranker, store).items():
                for question in corpus.questions:
                    found[name].ask(question, rank)
    best_peer = max(found["same words"].share, found["simple words"].share)
    return [
        Figure(name="recall@5, ours", value=found["ours"].share, unit="%", digits=1, goal=at_least(best_peer)),
        Figure(name="recall@5, BM25 on full text, our words", value=found["same words"].share, unit="%", digits=1),
        Figure(name="recall@5, BM25 on full text, simple words", value=found["simple words"].share, unit="%", digits=1),
        Figure(name="recall@5, BM25 on descriptions", value=found["descriptions"].share, unit="%", digits=1),
        Figure(name="recall@5, newest five", value=found["newest five"].share, unit="%", digits=1),
        *(Figure(name=question.query, value=lost, unit="lost") for question, lost in found["ours"].losses),
    ]


def _ways(corpus: Corpus, ranker: Bm25Ranker, store: Path) -> dict[str, Rank]:
    texts = {memory.id: memory.full_text for memory in corpus.memories}
    descriptions = {memory.id: memory.description for memory in corpus.memories}
    newest = [Path(scanned.path).stem for scanned in scan_newest(store, 5)]
    return {
        "ours": lambda query: [Path(ranked.path).stem for ranked in ranker.rank(query)],
        "same words": PlainBm25.of(texts, tokenize).rank,
        "simple words": PlainBm25.of(texts, simple_tokens).rank,
        "descriptions": PlainBm25.of(descriptions, tokenize).rank,
        "newest five": lambda _query: newest,
    }


def _speed(corpora: Sequence[Corpus], directory: Path) -> list[Figure]:
    store, small = directory / "large", directory / "small"
    for place, count in ((store, LARGE), (small, SCANNED)):
        place.mkdir()
        write_large_store(place, count, corpora)
    queries = [question.query for corpus in corpora for question in corpus.questions]
    with Bm25Ranker.open(store, directory / "large.db") as ranker:
        first, _ = _timed(ranker.refresh)
        idle, _ = _timed(ranker.refresh)
        ranker.rank(queries[0])
        fresh = [_timed(partial(ranker.rank, query))[0] for query in queries]
        times = sorted(_timed(partial(ranker.rank, query))[0] for query in queries * ROUNDS)
        exact = _agreement(ranker, store, queries)
        (store / "one-more.md").write_text("---\nname: one more\ndescription: a word\n---\nzyxwvut\n")
        adding, refreshed = _timed(ranker.refresh)
        read_again = refreshed.added + refreshed.changed + refreshed.removed
        assert [ranked.path for ranked in ranker.rank("zyxwvut")] == ["one-more.md"]
    scanning = min(_timed(lambda: scan_newest(small, SCANNED))[0] for _ in range(ROUNDS))
    return [
        Figure(name=f"{LARGE:,} files: indexed at first", value=first / 1_000, unit="s"),
        Figure(name=f"{LARGE:,} files: a query, median", value=statistics.median(times), unit="ms", goal=at_most(5)),
        Figure(name=f"{LARGE:,} files: a query, 99 of 100", value=times[len(times) * 99 // 100], unit="ms"),
        Figure(
            name=f"{LARGE:,} files: a query of new words, median",
            value=statistics.median(fresh),
            unit="ms",
            goal=at_most(5),
        ),
        Figure(name=f"{LARGE:,} files: of the five of BM25 over all", value=exact, unit="%", digits=1),
        Figure(name=f"{LARGE:,} files: looking for changes, none", value=idle, unit="ms"),
        Figure(name=f"{LARGE:,} files: looking for changes, one", value=adding, unit="ms"),
        Figure(name="files read again for one that is new", value=read_again, unit="", digits=0, goal=at_most(1)),
        Figure(name=f"{SCANNED} files: a scan", value=scanning, unit="ms", goal=at_most(10)),
    ]


def _agreement(ranker: Bm25Ranker, store: Path, queries: Sequence[str]) -> float:
    """Return the share of plain BM25's top results that local recall also returns."""
    plain = PlainBm25.of({path.name: path.read_text(encoding="utf-8") for path in store.iterdir()}, tokenize)
    shares = []
    for query in queries:
        best = plain.rank(query)
        shares.append(len({ranked.path for ranked in ranker.rank(query)}.intersection(best)) / len(best))
    return 100 * statistics.fmean(shares)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the milliseconds of a call and its result."""
    began = time.perf_counter()
    result = work()
    return 1_000 * (time.perf_counter() - began), result
