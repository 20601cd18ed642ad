"""Parser of a memory file (Markdown with front matter): its name, description, type and text."""

from pathlib import PurePosixPath
from typing import Literal, cast, get_args

import attrs

from coterie.memory.front_matter.front_matter import FrontMatter, parse_front_matter
from coterie.memory.front_matter.yaml_fields import Value

MemoryType = Literal["user", "feedback", "project", "reference"]
TYPES: tuple[MemoryType, ...] = get_args(MemoryType)

LONGEST_DESCRIPTION = 300
"""Maximum length of a name or description, in characters; a longer one is cut."""
LONGEST_HEAD = 65_536
"""Number of characters at the start of a file in which the parser looks for fields."""


@attrs.frozen(kw_only=True)
class MemoryEntry:
    """A parsed memory file: its name, description, type and text."""

    name: str
    """The `name` field of the front matter, else the file name without its suffix."""
    description: str
    """The `description` field of the front matter, else the first line of the text; may be empty."""
    type: MemoryType | None
    """Type of the memory, such as "feedback"; None if the field is missing or has an unknown value."""
    body: str
    notes: tuple[str, ...] = ()
    """Messages about parts of the file that the parser skipped or corrected, with their line if they have one."""


def parse_entry(content: bytes, path: str) -> MemoryEntry:
    """Parse *content*, the bytes of the memory file *path*; accepts any bytes and never raises.

    The type is read from the field `type`, else from the field `type` of `metadata`.
    """
    stem = PurePosixPath(path).stem
    if b"\0" in content:
        return MemoryEntry(name=stem, description="", type=None, body="", notes=("it has a NUL byte; save it as text",))
    try:
        text, is_utf8 = content.decode(), True
    except UnicodeDecodeError:
        text, is_utf8 = content.decode(errors="replace"), False
    read = parse_front_matter(text[:LONGEST_HEAD])
    notes = [f"line {note.line}: {note.reason}" for note in read.notes]
    if not is_utf8:
        notes.append("it is not valid UTF-8, so invalid bytes are replaced; save it as UTF-8")
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
        notes.append(f"the type {named[:40]!r} is unknown; use one of {', '.join(TYPES)}")
        return None
    return cast("MemoryType", named.lower())


def _text(value: Value | None) -> str:
    """Return a front matter value as one line of limited length; empty if the value is not text."""
    return _cut(" ".join(value.split())) if isinstance(value, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 3].rstrip()}..."
