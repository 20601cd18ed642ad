"""Front matter of Markdown files, parsed leniently, with warnings."""

import re
from collections.abc import Sequence

import attrs

from coterie.memory.front_matter.lenient_yaml import KEY, parse_leniently
from coterie.memory.front_matter.yaml_fields import (
    FieldWarning,
    Value,
    YamlFields,
    YamlInvalid,
    parse_fields,
    quote_text,
)

_CLOSING = re.compile(r"(-{3,}|\.\.\.)[ \t]*")
_HEADING = re.compile(r"#{1,6} ")


@attrs.frozen(kw_only=True)
class FrontMatter:
    """The fields and the body of a file."""

    fields: dict[str, Value] = attrs.field(factory=dict)
    lines: dict[str, int] = attrs.field(factory=dict)
    """Maps a key to its line."""
    body: str
    """The text after the front matter; the whole text if there is no front matter."""
    notes: list[FieldWarning] = attrs.field(factory=list)
    """Warnings about skipped or corrected parts, in line order."""
    line: int | None = None
    """First line of the front matter; None if there is none."""


@attrs.frozen(kw_only=True)
class _Block:
    """Position of the front matter, in line indexes; *end* is exclusive."""

    start: int
    end: int
    body: int


def parse_front_matter(text: str) -> FrontMatter:
    """Parse *text*; accepts any text and never raises.

    All scalars are strings. Invalid YAML is parsed key by key, with a warning for each correction.
    """
    notes: list[FieldWarning] = []
    if text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        text = text[1:]
        notes.append(FieldWarning(1, "a byte order mark is ignored"))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    opening = _opening(lines)
    if opening is None:
        return FrontMatter(body="\n".join(lines), notes=notes)
    if opening or lines[0] != lines[0].lstrip():
        notes.append(FieldWarning(opening + 1, "the front matter should begin in column 1 of the first line"))
    return _parse_block(lines, opening, notes)


def _parse_block(lines: list[str], opening: int, notes: list[FieldWarning]) -> FrontMatter:
    indent = len(lines[opening]) - len(lines[opening].lstrip())
    outdented = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
    block = _block(outdented, opening, notes)
    try:
        fields = parse_fields("\n".join(outdented[block.start : block.end]), block.start + 1)
    except YamlInvalid as exc:
        block = _without_text(outdented, block, notes)
        fields = _parse_mixed(outdented[block.start : block.end], block.start + 1, exc)
    has_text = any(line.strip() and not line.startswith("#") for line in outdented[block.start : block.end])
    if has_text and not fields.values:
        notes.append(FieldWarning(opening + 1, "no `key: value` line follows, so this is text, not front matter"))
        return FrontMatter(body="\n".join(lines), notes=notes)
    return FrontMatter(
        fields=fields.values,
        lines=fields.lines,
        body="\n".join(lines[block.body :]),
        notes=sorted([*notes, *fields.notes], key=lambda note: note.line),
        line=opening + 1,
    )


def _opening(lines: Sequence[str]) -> int | None:
    """Return the index of the opening line `---`; only blank lines and comments may precede it."""
    in_comment = False
    for at, line in enumerate(map(str.strip, lines)):
        if in_comment or line.startswith("<!--"):
            _, end, behind = line.partition("-->")
            if behind.strip():
                return None
            in_comment = not end
        elif line:
            return at if line == "---" else None
    return None


def _block(lines: Sequence[str], opening: int, notes: list[FieldWarning]) -> _Block:
    start = opening + 1
    for at, line in enumerate(lines[start:], start):
        if _CLOSING.fullmatch(line):
            if line.strip() != "---":
                notes.append(FieldWarning(at + 1, f"{quote_text(line.strip())} is read as the closing `---`"))
            return _Block(start=start, end=at, body=at + 1)
    while start < len(lines) and not lines[start].strip():
        start += 1
    ends = (at for at, line in enumerate(lines) if at >= start and (not line.strip() or _HEADING.match(line)))
    end = next(ends, len(lines))
    notes.append(FieldWarning(end, "the closing `---` is missing; the front matter ends here"))
    return _Block(start=start, end=end, body=end)


def _without_text(lines: Sequence[str], block: _Block, notes: list[FieldWarning]) -> _Block:
    """End *block* at a heading with text below it, because its closing `---` is then a ruler in the text."""
    for at in range(block.start + 1, block.end - 1):
        if lines[at - 1].strip() or not _HEADING.match(lines[at]):
            continue
        below = next((line for line in lines[at + 1 : block.end] if line.strip()), None)
        if below is not None and not KEY.match(below):
            notes.append(FieldWarning(at + 1, "the closing `---` is missing before this heading"))
            return attrs.evolve(block, end=at, body=at)
    return block


def _parse_mixed(lines: Sequence[str], first_line: int, strict: YamlInvalid) -> YamlFields:
    fields = parse_leniently(lines, first_line)
    if not fields.notes:
        fields.notes.append(
            FieldWarning(strict.line, f"this is not valid YAML ({strict.reason}) and was read key by key")
        )
    return fields
