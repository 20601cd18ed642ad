"""One memory: name, description, type and text, parsed from its file."""

from pathlib import PurePosixPath
from typing import Literal, cast, get_args

import attrs

from coterie.memory.front_matter.front_matter import FrontMatter, parse_front_matter
from coterie.memory.front_matter.yaml_fields import Value

MemoryType = Literal["user", "feedback", "project", "reference"]
TYPES: tuple[MemoryType, ...] = get_args(MemoryType)

LONGEST_DESCRIPTION = 300
"""Characters; what describes a memory in more is a memory itself."""
LONGEST_HEAD = 65_536
"""Characters in which the fields stand, if there are any; what follows is not searched for them."""


@attrs.frozen(kw_only=True)
class MemoryEntry:
    """What a memory file says, as far as it can be read."""

    name: str
    """As its head says, else the name of the file without its end."""
    description: str
    """As its head says, else the first line of its text; may be empty."""
    type: MemoryType | None
    """None: it says none, or one that there is not."""
    body: str
    notes: tuple[str, ...] = ()
    """What was passed over or mended, with its line."""


def parse_entry(content: bytes, path: str) -> MemoryEntry:
    """The memory in the file *path*, whatever is in it; never raises.

    The type may stand at the top, or below `metadata`.
    """
    stem = PurePosixPath(path).stem
    if b"\0" in content:
        return MemoryEntry(name=stem, description="", type=None, body="", notes=("it is no text: it holds a NUL",))
    text = content.decode(errors="replace")
    read = parse_front_matter(text[:LONGEST_HEAD])
    notes = [f"line {note.line}: {note.reason}" for note in read.notes]
    if "\N{REPLACEMENT CHARACTER}" in text and not _is_utf8(content):
        notes.append("it is not valid UTF-8; what could not be read is replaced")
    return MemoryEntry(
        name=_text(read.fields.get("name")) or stem,
        description=_text(read.fields.get("description")) or _first_line(read.body),
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
    """A field on one line; empty if it is no text."""
    return _cut(" ".join(value.split())) if isinstance(value, str) else ""


def _first_line(body: str) -> str:
    lines = (line.strip().lstrip("#").strip() for line in body[:LONGEST_HEAD].split("\n"))
    return _cut(next(filter(None, lines), ""))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 3].rstrip()}..."


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
