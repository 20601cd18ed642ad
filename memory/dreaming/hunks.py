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
"""merge: what it takes away stands elsewhere. deletion: it does not."""
HunkState = Literal["applied", "waiting", "dropped", "rejected"]
"""dropped: the file is no longer what the dream saw, or the store refused it."""
LONG = 2_000
"""Lines from which on those that stand everywhere are not compared: it would take too long."""


@attrs.frozen(kw_only=True)
class Hunk:
    """Lines for other lines, in one place of one file."""

    number: int = 0
    """In its change, from 1."""
    start: int
    """The index of the first line that leaves; of one that only adds, of the line before which it does."""
    removed: tuple[str, ...] = ()
    """Lines with their ends."""
    added: tuple[str, ...] = ()
    kind: HunkKind = "addition"
    state: HunkState = "waiting"
    reason: str = ""
    """Why it waits, or was dropped."""
    lost: tuple[str, ...] = ()
    """Sentences that would stand nowhere any more."""
    evidence: tuple[str, ...] = ()
    """Lines of transcripts that justify it, as `session/agent:line`."""

    @property
    def end(self) -> int:
        """The index behind the last line that leaves."""
        return self.start + len(self.removed)

    def touches(self, first: int, last: int) -> bool:
        """Whether it may change a sentence in the lines from *first* to *last*, also by what it adds beside it."""
        return self.start <= last + 1 and self.end >= first


@attrs.frozen(kw_only=True)
class DreamFile:
    """One file as the dream saw it, and what became of it."""

    path: str
    base: str | None
    """None: there was none."""
    hunks: tuple[Hunk, ...]
    is_removed: bool = False
    """Whether the file is to go; it then has one hunk, all of it."""

    @property
    def base_hash(self) -> str | None:
        """Of the bytes that the hunks are made for."""
        return None if self.base is None else blake2b(self.base.encode(), digest_size=16).hexdigest()

    def text(self, chosen: Collection[int]) -> str | None:
        """The file with those of its hunks whose numbers are *chosen*; None if there is none then."""
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
        """Of the hunks in *state*."""
        return {hunk.number for hunk in self.hunks if hunk.state == state}


def hunks_between(path: str, base: str | None, result: str | None) -> DreamFile | None:
    """What lies between *base* and *result* of the file *path*; None if that is nothing.

    An index that is not there is an empty one.
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
    # Blank lines are alike everywhere: matched first, they would pair paragraphs that have nothing in common.
    matcher = difflib.SequenceMatcher(lambda line: not line.strip(), before, after, autojunk=is_long)
    hunks = [
        hunk
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
        for hunk in _hunks(path, i1, before[i1:i2], after[j1:j2])
    ]
    return DreamFile(path=path, base=base, hunks=tuple(hunks))


def _hunks(path: str, start: int, removed: Sequence[str], added: Sequence[str]) -> Iterator[Hunk]:
    """One hunk; in the index one for each line, as each leads to another memory."""
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
    """The memory that a line of the index leads to; another one for each line that leads to none."""
    return next((found.path for found in index_lines(line)), line)
