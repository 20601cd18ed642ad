"""Hunks: the changes of a dream in one file, each of which can be applied alone."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Literal

import attrs

from coterie.memory.dreaming.statements import split_lines
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.path_rules import INDEX

HunkKind = Literal["addition", "merge", "deletion"]
"""addition: only adds lines. merge: the removed facts are stated elsewhere. deletion: they are not."""
HunkState = Literal["applied", "waiting", "dropped", "rejected"]
"""dropped: the file has changed since the dream, or the store refused the edit."""
LONG = 2_000
"""Number of lines from which difflib ignores very frequent lines, because comparing them takes too long."""


@attrs.frozen(kw_only=True)
class Hunk:
    """A replacement of consecutive lines in one file."""

    number: int = 0
    """Number of the hunk within the dream, from 1."""
    start: int
    """Index of the first removed line; for a pure insertion, index of the line after it."""
    removed: tuple[str, ...] = ()
    """The lines that the hunk removes, with line ends."""
    added: tuple[str, ...] = ()
    kind: HunkKind = "addition"
    state: HunkState = "waiting"
    reason: str = ""
    """The reason why the hunk waits or was dropped."""
    lost: tuple[str, ...] = ()
    """Sentences that no file would contain after the hunk is applied."""
    evidence: tuple[str, ...] = ()
    """Transcript lines that justify the hunk, as `session/agent:line`."""

    @property
    def end(self) -> int:
        """Index of the line after the last removed line."""
        return self.start + len(self.removed)

    def touches(self, first: int, last: int) -> bool:
        """True if the hunk may change a sentence in the lines *first* to *last*, also by an adjacent insertion."""
        return self.start <= last + 1 and self.end >= first


@attrs.frozen(kw_only=True)
class DreamFile:
    """One file as the dream saw it, with its hunks."""

    path: str
    base: str | None
    """Content before the dream; None if the file did not exist."""
    hunks: tuple[Hunk, ...]
    is_removed: bool = False
    """True if the dream deletes the file; then one hunk removes all lines."""

    @property
    def base_hash(self) -> str | None:
        """Hash of the content to which the hunks apply."""
        return None if self.base is None else blake2b(self.base.encode(), digest_size=16).hexdigest()

    def text(self, chosen: Collection[int]) -> str | None:
        """Return the content after the hunks with the numbers *chosen*; None if the file then does not exist."""
        taken = sorted((hunk for hunk in self.hunks if hunk.number in chosen), key=lambda hunk: hunk.start)
        if self.is_removed and taken:
            return None
        if self.base is None and not taken:
            return None
        lines, done, at = split_lines(self.base or ""), list[str](), 0
        for hunk in taken:
            done += (*lines[at : hunk.start], *hunk.added)
            at = hunk.end
        return "".join((*done, *lines[at:]))

    def numbers(self, state: HunkState) -> set[int]:
        """Return the numbers of the hunks in *state*."""
        return {hunk.number for hunk in self.hunks if hunk.state == state}


def hunks_between(path: str, base: str | None, result: str | None) -> DreamFile | None:
    """Return the hunks between *base* and *result* of the file *path*; None if both are equal.

    A missing index counts as an empty index.
    """
    if path == INDEX:
        base, result = base or "", result or ""
    if base == result:
        return None
    before, after = split_lines(base or ""), split_lines(result or "")
    if base is None or result is None:
        whole = Hunk(start=0, removed=tuple(before), added=tuple(after))
        return DreamFile(path=path, base=base, hunks=(whole,), is_removed=result is None)
    is_long = max(len(before), len(after)) > LONG
    # Blank lines are junk: matching them first would pair unrelated paragraphs.
    matcher = difflib.SequenceMatcher(lambda line: not line.strip(), before, after, autojunk=is_long)
    hunks = [
        hunk
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
        for hunk in _hunks(path, i1, before[i1:i2], after[j1:j2])
    ]
    return DreamFile(path=path, base=base, hunks=tuple(hunks))


def _hunks(path: str, start: int, removed: Sequence[str], added: Sequence[str]) -> Iterator[Hunk]:
    """Yield one hunk; in the index one hunk for each line, because each line belongs to another memory."""
    if path != INDEX:
        yield Hunk(start=start, removed=tuple(removed), added=tuple(added))
        return
    left = list(added)
    for offset, line in enumerate(removed):
        same = next((other for other in left if _target(other) == _target(line)), None)
        if same is not None:
            left.remove(same)
        yield Hunk(start=start + offset, removed=(line,), added=() if same is None else (same,))
    for line in left:
        yield Hunk(start=start + len(removed), added=(line,))


def _target(line: str) -> str | None:
    """Return the memory to which an index line points, or the line itself if it is not a pointer."""
    return next((found.path for found in index_lines(line)), line)
