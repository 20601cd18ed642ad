"""Hunks: line changes that a dream (a model's consolidation of memories) makes in a file; each can be applied alone."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Literal

import attrs

from coterie.memory.dreaming.statements import split_lines
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.path_rules import INDEX

HunkKind = Literal["addition", "merge", "deletion"]
"""addition: adds lines only. merge: removes lines, whose facts remain in some file. deletion: loses a fact."""
HunkState = Literal["applied", "waiting", "dropped", "rejected"]
"""applied: written to the store. waiting: for approval. dropped: could not be written. rejected: by the user."""
LONG = 2_000
"""Files with more lines than this are compared with difflib's `autojunk`, which is faster but skips frequent lines."""


@attrs.frozen(kw_only=True)
class Hunk:
    """One change that a dream (memory consolidation) proposes: it replaces consecutive lines of one memory file."""

    number: int = 0
    """Number of the hunk among all hunks of its dream, from 1; 0 until `classify` assigns it."""
    start: int
    """Index, in the file before the dream, of the first removed line, or of the line before which the hunk inserts."""
    removed: tuple[str, ...] = ()
    """The lines that the hunk removes from the file, with their line ends; empty if it only inserts lines."""
    added: tuple[str, ...] = ()
    kind: HunkKind = "addition"
    state: HunkState = "waiting"
    reason: str = ""
    """Reason, for the user, why the hunk waits for approval or was dropped; may be empty."""
    lost: tuple[str, ...] = ()
    """Sentences, fields and index lines that this hunk removes and that no file would state after the dream."""
    evidence: tuple[str, ...] = ()
    """Transcript lines that the model names as justification of the hunk, as `session/agent:line`."""

    @property
    def end(self) -> int:
        """Index, in the file before the dream, of the line after the last removed line; `start` for an insertion."""
        return self.start + len(self.removed)

    def touches(self, first: int, last: int) -> bool:
        """True if the hunk changes or adjoins a line with index *first* to *last* in the file before the dream."""
        return self.start <= last + 1 and self.end >= first


@attrs.frozen(kw_only=True)
class DreamFile:
    """One file that a dream changes: its content before the dream, and the hunks (line replacements) of the dream."""

    path: str
    base: str | None
    """Content of the file before the dream; None if the dream creates the file."""
    hunks: tuple[Hunk, ...]
    is_removed: bool = False
    """True if the dream deletes the file; then its only hunk removes all lines."""

    @property
    def base_hash(self) -> str | None:
        """BLAKE2 hash, in hex, of the content before the dream; None if the dream creates the file."""
        return None if self.base is None else blake2b(self.base.encode(), digest_size=16).hexdigest()

    def text(self, chosen: Collection[int]) -> str | None:
        """Return `base` with only the hunks numbered *chosen* applied; None if the file then does not exist."""
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
        """Return the numbers of the hunks of this file that are in *state*, such as "waiting"."""
        return {hunk.number for hunk in self.hunks if hunk.state == state}


def hunks_between(path: str, base: str | None, result: str | None) -> DreamFile | None:
    """Compare the contents *base* and *result* of the file *path*, before and after a dream; return None if equal.

    The result has the differences as hunks. Content None means a missing file; a missing index counts as empty.
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
    """Yield one hunk that replaces *removed* by *added*; in the index (a line for each memory), one for each line."""
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
    """Return the path of the memory to which the index line *line* links; *line* itself if it links to no file."""
    return next((found.path for found in index_lines(line)), line)
