"""Classification of hunks by the facts that they would lose."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from coterie.memory.dreaming.hunks import DreamFile, Hunk
from coterie.memory.dreaming.statements import StatedFact, facts_in, missing_facts

DEPENDS = "what it moves would be lost without a hunk that waits, or was dropped"


@attrs.frozen(kw_only=True)
class KeptFacts:
    """What the files say that no dream has touched."""

    keys: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]], files: Sequence[DreamFile]) -> "KeptFacts":
        """Of all *texts*, with their paths, as far as it matters for *files*."""
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
    """*files* with a kind for each hunk, numbered: a deletion takes away what then stands nowhere."""
    files = _numbered(files)
    everything = {hunk.number for file in files for hunk in file.hunks}
    lost = _lost(files, everything, kept)
    return [_classified(file, lost.get(file.path, ())) for file in files]


def select_safe(
    files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts, allowed: Collection[str] = frozenset()
) -> set[int]:
    """The largest part of *chosen* that loses nothing but what has a key in *allowed*.

    What is merged into another file stays where it is as long as it does not stand there.
    """
    left = set(chosen)
    while lost := _lost(files, left, kept, allowed):
        for file in files:
            left -= _behind(file, lost.get(file.path, ()), left)
    return left


def lost_facts(files: Sequence[DreamFile], chosen: Collection[int], kept: KeptFacts) -> set[str]:
    """The keys of what would stand nowhere with *chosen* hunks."""
    return {said.key for lost in _lost(files, chosen, kept).values() for said in lost}


def approved_losses(files: Sequence[DreamFile], chosen: Collection[int]) -> set[str]:
    """The keys of what the *chosen* hunks are known to lose."""
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
    """What would stand nowhere, by the file it stood in; only files that have something."""
    after = {file.path: text for file in files if (text := file.text(chosen)) is not None}
    keys = kept.keys.union(said.key for path, text in after.items() for said in facts_in(path, text))
    paths = kept.paths | after.keys()
    before = {file.path for file in files if file.base is not None} | kept.paths
    lost: dict[str, list[StatedFact]] = {}
    for file in files:
        for said in _facts_before(file):
            if said.key in keys or said.key in allowed:
                continue
            # Of a memory that goes, the line in the index goes too; one that leads nowhere is all there is.
            if said.target is None or said.target in paths or said.target not in before:
                lost.setdefault(file.path, []).append(said)
    return lost


def _facts_before(file: DreamFile) -> list[StatedFact]:
    return [] if file.base is None else missing_facts(file.path, file.base)


def _behind(file: DreamFile, lost: Sequence[StatedFact], chosen: Collection[int]) -> set[int]:
    """The hunks among *chosen* by which *file* loses what is *lost*."""
    found: set[int] = set()
    for said in lost:
        touching = {hunk.number for hunk in file.hunks if hunk.touches(said.first, said.last)} & set(chosen)
        # A fence far above may have made a paragraph of code: then nobody knows which hunk it was.
        found |= touching or {hunk.number for hunk in file.hunks}
    return found


def _classified(file: DreamFile, lost: Sequence[StatedFact]) -> DreamFile:
    numbers = {hunk.number for hunk in file.hunks}
    return attrs.evolve(file, hunks=tuple(_with_kind(file, hunk, lost, numbers) for hunk in file.hunks))


def _with_kind(file: DreamFile, hunk: Hunk, lost: Sequence[StatedFact], numbers: Collection[int]) -> Hunk:
    ours = [said.text for said in lost if hunk.number in _behind(file, [said], numbers)]
    if ours:
        return attrs.evolve(hunk, kind="deletion", lost=tuple(ours))
    return attrs.evolve(hunk, kind="merge" if hunk.removed or file.is_removed else "addition")


def _numbered(files: Sequence[DreamFile]) -> list[DreamFile]:
    number, numbered = 0, list[DreamFile]()
    for file in files:
        hunks = [attrs.evolve(hunk, number=number + index) for index, hunk in enumerate(file.hunks, 1)]
        number += len(hunks)
        numbered.append(attrs.evolve(file, hunks=tuple(hunks)))
    return numbered
