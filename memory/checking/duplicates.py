"""Memories that say nearly the same."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from coterie.memory.checking.issue import CheckedMemory, StoreIssue

SHINGLE = 4
"""Words."""
SKETCH = 64
"""Shingles of a body that are kept for comparing; a short body has no more."""
SAME = 0.7
"""Share of shingles in common from which on two bodies are near the same."""
CANDIDATES = 5
"""Memories that one is compared with."""
NAMESAKES = 3
"""More memories of one name are not about one thing: the name says nothing."""
_WORDS = re.compile(r"\w+")


def find_duplicates(memories: Sequence[CheckedMemory]) -> Iterator[StoreIssue]:
    """Memories whose body is nearly that of an earlier one, and those whose name is.

    Each is compared with those that share a part of its sketch, so the work grows with the number of memories and not
    with that of pairs. The same name over another body is a contradiction: whoever follows the name cannot know which.
    """
    counts = Counter(_name(memory) for memory in memories)
    sketches: dict[str, frozenset[int]] = {}
    owners: dict[int, str] = {}
    """A shingle -> the first memory that has it."""
    names: dict[str, str] = {}
    for memory in memories:
        sketch = _sketch(memory.entry.body)
        twin = _find_similar(sketch, sketches, owners)
        namesake = names.setdefault(_name(memory), memory.path)
        if twin is not None:
            reason = f"says nearly the same as {twin}; keep one"
            yield StoreIssue(path=memory.path, kind="duplicate", reason=reason)
        elif _stem(namesake) != _stem(memory.path):
            yield _of_one_name(memory, namesake, counts[_name(memory)])
        sketches[memory.path] = sketch
        for shingle in sketch:
            owners.setdefault(shingle, memory.path)


def _of_one_name(memory: CheckedMemory, first: str, count: int) -> StoreIssue:
    shown = f"{memory.entry.name!r}"
    if count > NAMESAKES:
        reason = f"has the name of {count - 1} others, {shown}; a name should tell memories apart"
        return StoreIssue(path=memory.path, kind="front_matter", reason=reason)
    reason = f"has the name of {first}, {shown}, and says something else"
    return StoreIssue(path=memory.path, kind="contradiction", reason=reason)


def _name(memory: CheckedMemory) -> str:
    return " ".join(memory.entry.name.casefold().split())


def _stem(path: str) -> str:
    # Who gives no name has that of the file, and in another directory it means another thing.
    return path.rpartition("/")[2]


def _find_similar(sketch: frozenset[int], sketches: dict[str, frozenset[int]], owners: dict[int, str]) -> str | None:
    shared = Counter(owners[shingle] for shingle in sketch if shingle in owners)
    return next(
        (path for path, _ in shared.most_common(CANDIDATES) if _similarity(sketch, sketches[path]) >= SAME), None
    )


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """An estimate of how many shingles two bodies have in common; exact for short ones."""
    # The least of both together are a fair sample of all: those in both sketches are in both bodies.
    sample = sorted(one | other)[:SKETCH]
    return sum(shingle in one and shingle in other for shingle in sample) / len(sample) if sample else 0.0


def _sketch(body: str) -> frozenset[int]:
    """The least hashes of the runs of words in *body*; empty for one without words."""
    words = _WORDS.findall(body.casefold())
    runs = {" ".join(words[at : at + SHINGLE]) for at in range(max(len(words) - SHINGLE + 1, min(len(words), 1)))}
    # Not `hash`: that differs from one process to the next.
    return frozenset(sorted(zlib.crc32(run.encode("utf-8", "replace")) for run in runs)[:SKETCH])
