"""Classification of hunks by the facts that applying them would lose."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from coterie.memory.dreaming.hunks import DreamFile, Hunk
from coterie.memory.dreaming.statements import StatedFact, facts_in, missing_facts

DEPENDS = "what it moves would be lost without a hunk that waits, or was dropped"


@attrs.frozen(kw_only=True)
class KeptFacts:
    """Facts in the files that a dream has not changed."""

    keys: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]], files: Sequence[DreamFile]) -> "KeptFacts":
        """Collect the facts of *texts*, pairs of path and text, that also occur in *files*."""
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
    """Number the hunks of *files* and classify each; a deletion removes a fact that no file then states."""
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
    """Return the largest subset of *chosen* that loses no fact, except those with a key in *allowed*.

    Text that moves to another file stays in its old file unless the other file gets it too.
    """
    left = set(chosen)
    while lost := _lost(files, left, kept, allowed):
        for file in files:
            left -= _behind(file, lost.get(file.path, ()), left)
    return left


def lost_facts(files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts) -> set[str]:
    """Return the keys of the facts that no file would state after the *chosen* hunks."""
    return {said.key for lost in _lost(files, chosen, kept).values() for said in lost}


def approved_losses(files: Sequence[DreamFile], chosen: Collection[int]) -> set[str]:
    """Return the keys of the facts that the *chosen* hunks are known to lose."""
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
    """Return the facts that would be lost, by the path of the file that states them."""
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
    """Return the hunks among *chosen* that remove the *lost* facts from *file*."""
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
