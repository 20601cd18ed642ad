"""The file of session notes, read and replaced as a whole."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from coterie.files import replace_file
from coterie.memory.errors import NotesUnusable
from coterie.memory.layer_settings import NotesSettings
from coterie.memory.notes.document import NotesDocument
from coterie.memory.notes.notes_size import trim_notes
from coterie.memory.notes.template import Template

LARGEST = 1_000_000
"""Largest notes file that is read, in bytes."""
MODE = 0o600


def read_notes(path: Path, template: Template) -> NotesDocument | None:
    """Parse the notes in the file; None if there is no file. Raises `OSError`."""
    content = read_file(path)
    return None if content is None else NotesDocument.parse(_text(content), template)


def read_file(path: Path, *, follow: bool = False) -> bytes | None:
    """Return the content of a file; None if it does not exist. Raises `OSError`, also if it is not a regular file.

    A link is refused unless *follow* is true.
    """
    # O_NONBLOCK: opening a pipe must not block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def begin_update(path: Path, template: Template) -> tuple[NotesDocument, bytes]:
    """Correct or create the notes file before an update; return the notes and the file content.

    Raises `NotesUnusable` if the file is read-only, and `OSError`.
    """
    before = read_file(path)
    # Replacing a file ignores its permissions, but a user who made it read-only does not want it changed.
    if before is not None and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
        raise NotesUnusable(f"{path} is read-only")
    notes = NotesDocument.parse(_text(before or b""), template)
    content = notes.to_text().encode()
    if before != content:
        replace_file(path, content, mode=MODE)
    return notes, content


def end_update(
    path: Path, template: Template, settings: NotesSettings, kept: Mapping[str, str]
) -> tuple[NotesDocument, list[str]]:
    """Correct, trim and write the notes after an update; return them and the trimmed headings.

    Raises `NotesUnusable` if the notes are empty or deleted, and `OSError`.
    """
    read = read_notes(path, template)
    if read is None:
        raise NotesUnusable(f"{path} was deleted")
    if read.is_empty:
        raise NotesUnusable(f"nothing was written to {path}")
    notes, trimmed = trim_notes(read.with_kept(kept), settings)
    replace_file(path, notes.to_text().encode("utf-8", "backslashreplace"), mode=MODE)
    return notes, trimmed


def _text(content: bytes) -> str:
    """Decode *content*; invalid bytes become escapes, so that nothing is lost."""
    return content.decode("utf-8", "backslashreplace")
