"""Classification of hunks, the line changes of a dream (memory consolidation), by the facts that they would lose."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from coterie.memory.dreaming.hunks import DreamFile, Hunk
from coterie.memory.dreaming.statements import StatedFact, facts_in, missing_facts

DEPENDS = "a fact would be lost, because the hunk that adds it elsewhere is not applied; apply both or run a new dream"


@attrs.frozen(kw_only=True)
class KeptFacts:
    """Facts (such as sentences) in memories that a dream leaves unchanged, so that the changes cannot lose them."""

    keys: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]], files: Sequence[DreamFile]) -> "KeptFacts":
        """Collect from *texts*, (path, text) of all memories, the facts of *files* that other memories state too."""
        wanted = {said.key for file in files for said in _facts_before(file)}
        touched = {file.path for file in files}
        keys: set[str] = set()
        paths: set[str] = set()
        for path, text in texts:
            if path not in touched:
                paths.add(path)
                keys.update(wanted.intersection(said.key for said in facts_in(path, text)))
        return cls(keys=frozenset(keys), paths=frozenset(paths))


def classify(files: Sequence[DreamFile], kept: KeptFacts) -> list[DreamFile]:
    """Return *files* with hunks numbered and classified: "deletion" (loses facts), "merge" (loses none), "addition"."""
    numbers = itertools.count(1)
    numbered = [
        attrs.evolve(file, hunks=tuple(attrs.evolve(hunk, number=next(numbers)) for hunk in file.hunks))
        for file in files
    ]
    everything = {hunk.number for file in numbered for hunk in file.hunks}
    lost = _lost(numbered, everything, kept)
    return [
        attrs.evolve(file, hunks=tuple(_classified(file, hunk, lost.get(file.path, ())) for hunk in file.hunks))
        for file in numbered
    ]


def select_safe(
    files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts, allowed: Collection[str] = frozenset()
) -> set[int]:
    """Return the numbers of *chosen* hunks that together lose no fact, except facts whose key is in *allowed*.

    A hunk that removes text from one file is left out if the hunk that adds this text to another file is left out.
    """
    left = set(chosen)
    while lost := _lost(files, left, kept, allowed):
        for file in files:
            left -= _behind(file, lost.get(file.path, ()), left)
    return left


def lost_facts(files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts) -> set[str]:
    """Return the comparison keys of the facts that no file would state after applying the hunks numbered *chosen*."""
    return {said.key for lost in _lost(files, chosen, kept).values() for said in lost}


def approved_losses(files: Sequence[DreamFile], chosen: Collection[int]) -> set[str]:
    """Return the comparison keys of the facts that the hunks numbered *chosen* list in `lost`, visible to the user."""
    return {
        said.key
        for file in files
        for hunk in file.hunks
        if hunk.number in chosen and hunk.lost
        for said in _facts_before(file)
        if said.text in hunk.lost
    }


def _lost(
    files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts, allowed: Collection[str] = frozenset()
) -> Mapping[str, Sequence[StatedFact]]:
    """Return the facts, except *allowed*, that no file states after the *chosen* hunks, by path of their old file."""
    after = {file.path: text for file in files if (text := file.text(chosen)) is not None}
    keys = kept.keys.union(said.key for path, text in after.items() for said in facts_in(path, text))
    paths = kept.paths | after.keys()
    before = {file.path for file in files if file.base is not None} | kept.paths
    lost: dict[str, list[StatedFact]] = {}
    for file in files:
        for said in _facts_before(file):
            if said.key in keys or said.key in allowed:
                continue
            # An index line is lost with its memory, except a line that already pointed to a missing file.
            if said.target is None or said.target in paths or said.target not in before:
                lost.setdefault(file.path, []).append(said)
    return lost


def _facts_before(file: DreamFile) -> list[StatedFact]:
    return [] if file.base is None else missing_facts(file.path, file.base)


def _behind(file: DreamFile, lost: Sequence[StatedFact], chosen: Collection[int]) -> set[int]:
    """Return the numbers of *chosen* hunks of *file* that touch *lost* facts; of all its hunks if none does."""
    found: set[int] = set()
    for said in lost:
        touching = {hunk.number for hunk in file.hunks if hunk.touches(said.first, said.last)} & set(chosen)
        # A changed code fence far above can alter a paragraph; then any hunk may be the cause.
        found |= touching or {hunk.number for hunk in file.hunks}
    return found


def _classified(file: DreamFile, hunk: Hunk, lost: Sequence[StatedFact]) -> Hunk:
    numbers = {other.number for other in file.hunks}
    ours = [said.text for said in lost if hunk.number in _behind(file, [said], numbers)]
    if ours:
        return attrs.evolve(hunk, kind="deletion", lost=tuple(ours))
    return attrs.evolve(hunk, kind="merge" if hunk.removed or file.is_removed else "addition")
