"""The file of session notes, read and replaced whole."""

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
"""Bytes that are read; notes that are so long no one has meant to be notes."""
MODE = 0o600


def read_notes(path: Path, template: Template) -> NotesDocument | None:
    """The notes in the file, whatever it is; None if there is none. Raises `OSError`."""
    content = read_file(path)
    return None if content is None else NotesDocument.parse(_text(content), template)


def read_file(path: Path, *, follow: bool = False) -> bytes | None:
    """What the file holds; None if there is none. Raises `OSError`, also for what is no regular file.

    A link is refused unless *follow*.
    """
    # Without waiting for the other end of a pipe.
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
    """The notes before an update, and all that the file holds: mended, or made if there was none.

    Raises `NotesUnusable` for a file that is read-only, and `OSError`.
    """
    before = read_file(path)
    # Replacing asks for no right to write to the file, but who took that right away did not want it changed.
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
    """The notes after an update, in the file: mended, trimmed and with what we keep; and which headings were trimmed.

    Raises `NotesUnusable` if nothing is in them or they are gone, and `OSError`.
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
    """The text of *content*; what is no UTF-8 comes as escapes, so that nothing is lost."""
    return content.decode("utf-8", "backslashreplace")
