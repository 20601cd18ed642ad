"""Recall test of a dream (memory consolidation): past queries should find the same facts before and after it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from coterie.memory.dreaming.dream_change import RecallTest
from coterie.memory.dreaming.statements import facts_in
from coterie.memory.dreaming.working_copy import WorkingCopy, read_texts
from coterie.memory.recall.bm25 import Bm25Ranker
from coterie.memory.store.path_rules import INDEX

FOUND = 5
"""Maximum number of memories that each query of the test returns."""
WORST = 0.1
"""Largest share of the found memories that a dream may lose; if it loses more, all its hunks need approval."""
SHOWN = 20


def compare_recall(copied: WorkingCopy, queries: Sequence[str]) -> RecallTest:
    """Run past *queries* on the memories before and after the dream, and count the memories that are found again.

    A merged memory counts as found if a file with at least half of its facts is found. Blocks, for a moment with
    thousands of files. Raises `OSError` and `sqlite3.Error`.
    """
    if not queries:
        return RecallTest(queries=0)
    results: list[list[list[str]]] = []
    for directory in (copied.base, copied.work):
        # Not inside the working copy, because another task may remove the copy.
        with (
            TemporaryDirectory(prefix="coterie-") as place,
            Bm25Ranker.open(directory, Path(place) / "cache.db") as ranker,
        ):
            ranker.refresh()
            results.append([[ranked.path for ranked in ranker.rank(query, FOUND)] for query in queries])
    before, after = results
    homes = _moved_to(copied, {path for paths in before for path in paths})
    lost = [
        f"{query} -> {path}"
        for query, paths, now in zip(queries, before, after, strict=True)
        for path in paths
        if homes[path].isdisjoint(now)
    ]
    found = sum(map(len, before))
    return RecallTest(queries=len(queries), found=found, kept=found - len(lost), lost=tuple(lost[:SHOWN]))


def _moved_to(copied: WorkingCopy, paths: Iterable[str]) -> Mapping[str, set[str]]:
    """Map each of *paths* to a set: itself, and all files that contain at least half of its facts after the dream."""
    homes = {path: {path} for path in paths}
    moved = {path: _keys(path, text) for path, text in read_texts(copied.base) if path in homes}
    after = {path: _keys(path, text) for path, text in read_texts(copied.work)}
    moved = {path: keys for path, keys in moved.items() if keys and keys != after.get(path)}
    owners: dict[str, list[str]] = {}
    for path, keys in moved.items():
        for key in keys:
            owners.setdefault(key, []).append(path)
    for place in after.keys() - {INDEX}:
        shared = Counter(path for key in after[place] for path in owners.get(key, ()))
        for path, count in shared.items():
            if count * 2 >= len(moved[path]):
                homes[path].add(place)
    return homes


def _keys(path: str, text: str) -> set[str]:
    return {said.key for said in facts_in(path, text)}
