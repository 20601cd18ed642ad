"""Detection of memories with almost the same content."""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from coterie.memory.checking.issue import CheckedMemory, StoreIssue

SHINGLE = 4
"""Number of words."""
SKETCH = 64
"""Number of shingle hashes kept for the comparison of a body; a short body has fewer."""
SAME = 0.7
"""Share of common shingles from which two bodies count as duplicates."""
CANDIDATES = 5
"""Number of memories with which one memory is compared."""
NAMESAKES = 3
"""If more memories share a name, the name is too general to compare their content."""
_WORDS = re.compile(r"\w+")


def find_duplicates(memories: Sequence[CheckedMemory]) -> Iterator[StoreIssue]:
    """Yield an issue for each memory whose body or name almost equals that of an earlier memory.

    A memory is compared only with memories that share a part of its sketch, so the work grows linearly. The same name
    with another body is a contradiction, because a reader of the name cannot know which memory is meant.
    """
    counts = Counter(_name(memory) for memory in memories)
    sketches: dict[str, frozenset[int]] = {}
    owners: dict[int, str] = {}
    """Maps a shingle to the first memory that contains it."""
    names: dict[str, str] = {}
    for memory in memories:
        sketch = _sketch(memory.entry.body)
        similar = _find_similar(sketch, sketches, owners)
        namesake = names.setdefault(_name(memory), memory.path)
        if similar is not None:
            reason = f"says nearly the same as {similar}; keep one"
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
    # The directory is dropped: a memory without a name is named after its file, also in another directory.
    return path.rpartition("/")[2]


def _find_similar(sketch: frozenset[int], sketches: dict[str, frozenset[int]], owners: dict[int, str]) -> str | None:
    shared = Counter(owners[shingle] for shingle in sketch if shingle in owners)
    return next(
        (path for path, _ in shared.most_common(CANDIDATES) if _similarity(sketch, sketches[path]) >= SAME), None
    )


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Estimate the share of shingles that two bodies have in common; exact for short bodies."""
    # The smallest hashes of both sketches are a uniform sample of the union of both bodies.
    sample = sorted(one | other)[:SKETCH]
    return sum(shingle in one and shingle in other for shingle in sample) / len(sample) if sample else 0.0


def _sketch(body: str) -> frozenset[int]:
    """Return the smallest hashes of the word runs in *body*; empty without words."""
    words = _WORDS.findall(body.casefold())
    runs = {" ".join(words[at : at + SHINGLE]) for at in range(max(len(words) - SHINGLE + 1, min(len(words), 1)))}
    # Not `hash`, which differs between processes.
    return frozenset(sorted(zlib.crc32(run.encode("utf-8", "replace")) for run in runs)[:SKETCH])
