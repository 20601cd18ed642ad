"""Hunks of the index: made line by line in the index as it is now, because the store keeps that in step by itself."""

from collections.abc import Sequence

import attrs

from coterie.memory.dreaming.facts import split_lines
from coterie.memory.dreaming.hunks import DreamFile, Hunk


@attrs.frozen(kw_only=True)
class Indexed:
    """An index with some hunks in it."""

    text: str
    dropped: tuple[Hunk, ...]
    """Those whose line is not there, or there twice."""


def index_with(current: str, file: DreamFile, hunks: Sequence[Hunk]) -> Indexed:
    """The index *current* with *hunks* of *file*."""
    lines, base = split_lines(current), split_lines(file.base or "")
    dropped: list[Hunk] = []
    # From the end: the line behind which one adds is still there, and two that add in one place keep their order.
    for hunk in sorted(hunks, key=lambda hunk: hunk.start)[::-1]:
        if not hunk.removed:
            _insert(lines, hunk, base)
        elif lines.count(hunk.removed[0]) == 1:
            at = lines.index(hunk.removed[0])
            lines[at : at + 1] = hunk.added
        elif hunk.added or hunk.removed[0] in lines:  # else it has gone by itself, with its memory
            dropped.append(hunk)
    return Indexed(text="".join(lines), dropped=tuple(dropped))


def _insert(lines: list[str], hunk: Hunk, base: Sequence[str]) -> None:
    """Put what *hunk* adds behind the line that it stood behind, or at the end."""
    if any(line in lines for line in hunk.added):
        return
    before = base[hunk.start - 1] if hunk.start else None
    at = lines.index(before) + 1 if before in lines else 0 if hunk.start == 0 else len(lines)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    added = [line if line.endswith("\n") else f"{line}\n" for line in hunk.added]
    lines[at:at] = added
