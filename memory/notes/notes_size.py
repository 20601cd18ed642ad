"""Size of session notes, and trimming to the limits of the settings."""

import re
from collections.abc import Sequence

import attrs

from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import NotesDocument, close_fences
from coterie.memory.notes.template import WORKLOG, fold_heading

TOKEN_BYTES = 4
"""Bytes of text that count as one token."""
_FENCE_BYTES = 8
"""Reserved for the closing fence of a code block that is cut."""
_NOTICE = re.compile(r"\[Trimmed to [\d,]+ tokens: [^\]\n]*\]\n*")


def tokens_of(text: str) -> int:
    """Estimate the number of tokens of *text*."""
    return -(-len(text.encode()) // TOKEN_BYTES)


def trim_notes(notes: NotesDocument, settings: NotesSettings) -> tuple[NotesDocument, list[str]]:
    """Trim the notes to the limits of *settings*; return them and the headings of the trimmed sections.

    The worklog loses its oldest lines, other sections lose their end, and a notice is added to the section. If the sum
    is too large, the longest sections are trimmed first.
    """
    cap = min(settings.section, _cap([min(tokens_of(body), settings.section) for body in notes.bodies], settings.total))
    headings = [section.heading for section in notes.template.sections]
    over = [heading for heading, body in zip(headings, notes.bodies, strict=True) if tokens_of(body) > cap]
    bodies = [
        _trim(body, cap, is_log=fold_heading(heading) == fold_heading(WORKLOG)) if heading in over else body
        for heading, body in zip(headings, notes.bodies, strict=True)
    ]
    return attrs.evolve(notes, bodies=tuple(bodies)), over


def _cap(sizes: Sequence[int], total: int) -> int:
    """Return the largest section size with which the sum of all sections is at most *total*."""
    left = total
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return total


def _trim(body: str, cap: int, *, is_log: bool) -> str:
    what = "older lines were" if is_log else "the end of this section was"
    notice = f"[Trimmed to {cap:,} tokens: {what} left out. Make it shorter.]"
    text = _NOTICE.sub("", body)
    size = max(0, cap * TOKEN_BYTES - len(notice) - _FENCE_BYTES)
    content = text.encode()
    part = (content[max(0, len(content) - size) :] if is_log else content[:size]).decode("utf-8", "ignore")
    lines = part.partition("\n")[2] if is_log else part.rpartition("\n")[0]
    # Whole lines, if they are more than half of what is left.
    kept = lines if 2 * len(lines) > len(part) else part
    if is_log:
        return close_fences("\n".join(filter(None, [notice, kept])))
    return "\n".join(filter(None, [close_fences(kept), notice]))
