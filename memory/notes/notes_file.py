"""File of session notes (a summary of an agent's work): reading, correcting, and trimming to the size limits."""

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from coterie.files import replace_file
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import NotesDocument, close_fences
from coterie.memory.notes.template import WORKLOG, Template, fold_heading

LARGEST = 1_000_000
"""Size in bytes of the largest notes file; reading a larger file fails."""
MODE = 0o600


def read_notes(path: Path, template: Template) -> NotesDocument | None:
    """Read the session notes in the file *path*, with the sections of *template*; None if missing. Raises `OSError`."""
    content = read_file(path)
    return None if content is None else NotesDocument.parse(_text(content), template)


def read_file(path: Path, *, follow: bool = False) -> bytes | None:
    """Return the content of the file *path*; None if it does not exist. A pipe cannot block the call.

    Raises `OSError`, also if it is not a regular file, is too large, or is a symbolic link and *follow* is False.
    """
    # O_NONBLOCK: opening a pipe must not block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "the path is not a regular file; replace it by a text file", str(path))
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def begin_update(path: Path, template: Template) -> tuple[NotesDocument, bytes]:
    """Before an update by a model, create the notes file *path* or correct its headings; return notes and content.

    Raises `NotesUnusable` if the file is read-only, and `OSError`.
    """
    before = read_file(path)
    # Replacing a file ignores its permissions, but a user who made it read-only does not want it changed.
    if before is not None and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise NotesUnusable(f"session notes {path} cannot be updated, because the file is read-only; make it writable")
    notes = NotesDocument.parse(_text(before or b""), template)
    content = notes.to_text().encode()
    if before != content:
        replace_file(path, content, mode=MODE)
    return notes, content


def end_update(
    path: Path, template: Template, settings: NotesSettings, kept: Mapping[str, str]
) -> tuple[NotesDocument, list[str]]:
    """After an update by a model, read the notes file, add the sections *kept*, trim all sections and write the file.

    Returns the notes and headings of trimmed sections. Raises `OSError`; `NotesUnusable` for empty or deleted notes.
    """
    read = read_notes(path, template)
    if read is None:
        raise NotesUnusable(f"session notes {path} were deleted during an update; the next update creates them again")
    if read.is_empty:
        raise NotesUnusable(f"session notes {path} are empty after an update; the next update tries again")
    notes, trimmed = trim_notes(read.with_kept(kept), settings)
    replace_file(path, notes.to_text().encode("utf-8", "backslashreplace"), mode=MODE)
    return notes, trimmed


def _text(content: bytes) -> str:
    """Decode *content* of a notes file as UTF-8; invalid bytes become escapes, so that no text is lost."""
    return content.decode("utf-8", "backslashreplace")


TOKEN_BYTES = 4
"""Number of bytes of text that count as one token in estimates."""
_FENCE_BYTES = 8
"""Number of bytes reserved in a trimmed section for the closing fence of a code block that was cut."""
_NOTICE = re.compile(r"\[Trimmed to [\d,]+ tokens: [^\]\n]*\]\n*")


def tokens_of(text: str) -> int:
    """Estimate the number of tokens of *text* from its size in bytes."""
    return -(-len(text.encode()) // TOKEN_BYTES)


def trim_notes(notes: NotesDocument, settings: NotesSettings) -> tuple[NotesDocument, list[str]]:
    """Trim the notes to the token limits in *settings*; return the notes and the headings of the trimmed sections.

    The section "Worklog" loses its oldest lines, any other section its end, and a notice is added. If all sections
    together are too large, the longest are trimmed to a common size.
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
    """Return the largest limit for each section with which sections of *sizes* tokens together fit into *total*."""
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
