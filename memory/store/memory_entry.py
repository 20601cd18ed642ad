"""One memory: name, description, type and text, parsed from its file."""

from pathlib import PurePosixPath
from typing import Literal, cast, get_args

import attrs

from coterie.memory.front_matter.front_matter import FrontMatter, parse_front_matter
from coterie.memory.front_matter.yaml_fields import Value

MemoryType = Literal["user", "feedback", "project", "reference"]
TYPES: tuple[MemoryType, ...] = get_args(MemoryType)

LONGEST_DESCRIPTION = 300
"""In characters. A longer description is cut, because it should be a memory of its own."""
LONGEST_HEAD = 65_536
"""In characters. Fields are parsed only in this first part of a file."""


@attrs.frozen(kw_only=True)
class MemoryEntry:
    """The parts of a memory file that can be parsed."""

    name: str
    """The `name` field, else the file name without its suffix."""
    description: str
    """The `description` field, else the first line of the text; may be empty."""
    type: MemoryType | None
    """Type of the memory; None if the field is missing or unknown."""
    body: str
    notes: tuple[str, ...] = ()
    """Parts that were skipped or corrected, with their line."""


def parse_entry(content: bytes, path: str) -> MemoryEntry:
    """Parse the content of the memory file *path*; accepts any bytes and never raises.

    The type may be a field of its own or a field of `metadata`.
    """
    stem = PurePosixPath(path).stem
    if b"\0" in content:
        return MemoryEntry(name=stem, description="", type=None, body="", notes=("not text: contains a NUL",))
    try:
        text, is_utf8 = content.decode(), True
    except UnicodeDecodeError:
        text, is_utf8 = content.decode(errors="replace"), False
    read = parse_front_matter(text[:LONGEST_HEAD])
    notes = [f"line {note.line}: {note.reason}" for note in read.notes]
    if not is_utf8:
        notes.append("it is not valid UTF-8; invalid bytes are replaced")
    lines = (line.strip().lstrip("#").strip() for line in read.body[:LONGEST_HEAD].split("\n"))
    return MemoryEntry(
        name=_text(read.fields.get("name")) or stem,
        description=_text(read.fields.get("description")) or _cut(next(filter(None, lines), "")),
        type=_type(read, notes),
        body=f"{read.body}{text[LONGEST_HEAD:]}".strip("\n"),
        notes=tuple(notes),
    )


def _type(read: FrontMatter, notes: list[str]) -> MemoryType | None:
    metadata = read.fields.get("metadata")
    below = metadata.get("type") if isinstance(metadata, dict) else None
    named = _text(read.fields.get("type")) or _text(below)
    if not named:
        return None
    if named.lower() not in TYPES:
        notes.append(f"the type {named[:40]!r} is unknown; it should be one of {', '.join(TYPES)}")
        return None
    return cast("MemoryType", named.lower())


def _text(value: Value | None) -> str:
    """Return a field as one line of limited length; empty if the field is not text."""
    return _cut(" ".join(value.split())) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 3].rstrip()}..."
