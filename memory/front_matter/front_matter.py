"""Lenient parser, with warnings, of front matter: YAML fields between two lines `---` at the start of a Markdown file.

Invalid YAML is parsed key by key, so that a mistake affects only the value of its key.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence

import attrs

from coterie.memory.front_matter.yaml_fields import (
    DEPTH,
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
    """A parsed Markdown file: the fields of its front matter (YAML between two lines `---`) and its body."""

    fields: dict[str, Value] = attrs.field(factory=dict)
    lines: dict[str, int] = attrs.field(factory=dict)
    """Maps the key of each field to its line number in the file, from 1."""
    body: str
    """The text of the file after the front matter; the whole text if there is no front matter."""
    notes: list[FieldWarning] = attrs.field(factory=list)
    """Warnings about parts of the front matter that were ignored or corrected, in line order."""
    line: int | None = None
    """Line number of the opening `---`, from 1; None if the file has no front matter."""


@attrs.frozen(kw_only=True)
class _Block:
    """Position of the front matter fields, as line indexes from 0 (*end* is exclusive), and first line of the body."""

    start: int
    end: int
    body: int


def parse_front_matter(text: str) -> FrontMatter:
    """Parse the Markdown file content *text* into front matter fields and body. Accepts any text and never raises.

    Numbers and other scalars stay strings. Invalid YAML is parsed key by key, with a warning for each correction.
    """
    notes: list[FieldWarning] = []
    if text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}"):
        text = text[1:]
        notes.append(FieldWarning(1, "a byte order mark is ignored; save the file as UTF-8 without it"))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    opening = _opening(lines)
    if opening is None:
        return FrontMatter(body="\n".join(lines), notes=notes)
    if opening or lines[0] != lines[0].lstrip():
        notes.append(FieldWarning(opening + 1, "the line `---` before the fields should be line 1, without spaces"))
    return _parse_block(lines, opening, notes)


def _parse_block(lines: list[str], opening: int, notes: list[FieldWarning]) -> FrontMatter:
    indent = len(lines[opening]) - len(lines[opening].lstrip())
    outdented = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines]
    block = _block(outdented, opening, notes)
    try:
        fields = parse_fields("\n".join(outdented[block.start : block.end]), block.start + 1)
    except YamlInvalid as exc:
        block = _without_text(outdented, block, notes)
        fields = parse_leniently(outdented[block.start : block.end], block.start + 1)
        if not fields.notes:
            reason = f"this is not valid YAML ({exc.reason}) and was read key by key; correct this line"
            fields.notes.append(FieldWarning(exc.line, reason))
    has_text = any(line.strip() and not line.startswith("#") for line in outdented[block.start : block.end])
    if has_text and not fields.values:
        notes.append(FieldWarning(opening + 1, "this is not front matter: no `key: value` follows; add fields"))
        return FrontMatter(body="\n".join(lines), notes=notes)
    return FrontMatter(
        fields=fields.values,
        lines=fields.lines,
        body="\n".join(lines[block.body :]),
        notes=sorted([*notes, *fields.notes], key=lambda note: note.line),
        line=opening + 1,
    )


def _opening(lines: Sequence[str]) -> int | None:
    """Return the index of the opening line `---`, after blank lines and comments only; None if there is none."""
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
                notes.append(FieldWarning(at + 1, f"{quote_text(line.strip())} is read as closing `---`; write `---`"))
            return _Block(start=start, end=at, body=at + 1)
    while start < len(lines) and not lines[start].strip():
        start += 1
    ends = (at for at, line in enumerate(lines) if at >= start and (not line.strip() or _HEADING.match(line)))
    end = next(ends, len(lines))
    notes.append(FieldWarning(end, "the closing `---` of the front matter is missing; add it after this line"))
    return _Block(start=start, end=end, body=end)


def _without_text(lines: Sequence[str], block: _Block, notes: list[FieldWarning]) -> _Block:
    """Return *block*, cut before the first heading that text follows, if any; its closing `---` is then a ruler."""
    for at in range(block.start + 1, block.end - 1):
        if lines[at - 1].strip() or not _HEADING.match(lines[at]):
            continue
        below = next((line for line in lines[at + 1 : block.end] if line.strip()), None)
        if below is not None and not KEY.match(below):
            notes.append(FieldWarning(at + 1, "the closing `---` of the front matter is missing; add it above this"))
            return attrs.evolve(block, end=at, body=at)
    return block


KEY = re.compile(r"""[ \t]*(?P<key>[^\W\d][\w.-]*|"[^"]+"|'[^']+')[ \t]*:(?![:/])(?P<rest>.*)""")
"""Pattern of a line that begins a field, `key: value`. The space may be missing, but `http://` must not match."""

_BLOCK_SCALAR = re.compile(r"([|>])[-+\d]{0,2}")
_MARGIN = re.compile(r"^[ \t]+")


@attrs.frozen(kw_only=True)
class _Piece:
    """The lines of one front matter field: the line with its key, and the lines below up to the next key."""

    key: str
    line: int
    head: str
    """First line of the field, from its key on, without indentation."""
    rest: str
    """Text after the colon in the first line of the field."""
    following: tuple[str, ...]


def parse_leniently(lines: Sequence[str], first_line: int = 1, depth: int = 0) -> YamlFields:
    """Parse *lines*, of which the first is line *first_line* of its file, as fields `key: value`; never raises.

    A field that is valid YAML is parsed as YAML. The type of any other value is guessed by its form, with a warning.
    """
    fields = YamlFields()
    for piece in _pieces(textwrap.dedent("\n".join(lines)).split("\n"), first_line, fields.notes):
        fields.begin(piece.key, piece.line)
        fields.values[piece.key] = _value(piece, fields.notes, depth)
    return fields


def _pieces(lines: list[str], first_line: int, notes: list[FieldWarning]) -> Iterator[_Piece]:
    starts: list[int] = []
    for at, line in enumerate(lines):
        if KEY.match(line) and (not starts or not line[0].isspace()):
            starts.append(at)
        elif not starts and line.strip() and not line.startswith("#"):
            notes.append(
                FieldWarning(first_line + at, f"{quote_text(line.strip())} is ignored; write it as `key: value`")
            )
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        found = KEY.match(lines[at])
        assert found is not None
        # A comment in column 1 belongs to no value.
        following = tuple("" if line.startswith("#") else line for line in lines[at + 1 : end])
        yield _Piece(
            key=found["key"].strip("\"'"),
            line=first_line + at,
            head=lines[at].lstrip(),
            rest=found["rest"].strip(),
            following=following,
        )


def _value(piece: _Piece, notes: list[FieldWarning], depth: int) -> Value:
    try:
        return _strict(piece, piece.following, notes)
    except YamlInvalid as exc:
        problem = exc.reason
    untabbed = tuple(_MARGIN.sub(lambda margin: margin[0].expandtabs(2), line) for line in piece.following)
    try:
        value = _strict(piece, untabbed, notes)
    except YamlInvalid:
        kind, value = _guess(piece, notes, depth)
        hint = "" if "; " in problem else "; put it in quotes" if kind == "text" else "; correct it"
        notes.append(
            FieldWarning(
                piece.line, f"{quote_text(piece.key)} is not valid YAML ({problem}) and is read as {kind}{hint}"
            )
        )
    else:
        notes.append(
            FieldWarning(piece.line, f"{quote_text(piece.key)} is indented with tabs, read as two spaces; use spaces")
        )
    return value


def _strict(piece: _Piece, following: Sequence[str], notes: list[FieldWarning]) -> Value:
    fields = parse_fields("\n".join([piece.head, *following]), piece.line)
    if list(fields.values) != [piece.key]:
        raise YamlInvalid(
            piece.line, "a line below has a key that is not a plain word; quote that key, or remove the line"
        )
    notes += fields.notes
    return fields.values[piece.key]


def _guess(piece: _Piece, notes: list[FieldWarning], depth: int) -> tuple[str, Value]:
    below = next((line for line in piece.following if line.strip()), "")
    if not piece.rest and below.lstrip().startswith("-"):
        return "a list", _dashed(piece.following)
    if not piece.rest and _MARGIN.match(below) and KEY.match(below) and depth < DEPTH:
        nested = parse_leniently(piece.following, piece.line + 1, depth + 1)
        notes += nested.notes
        return "a mapping", nested.values
    text = _folded([piece.rest, *piece.following])
    inside = text[1:].removesuffix("]")
    if text.startswith("[") and not {"[", "]"} & set(inside):
        return "a list", [_unquoted(item.strip()) for item in inside.split(",") if item.strip()]
    header = _BLOCK_SCALAR.fullmatch(piece.rest)
    if header is None:
        return "text", _unquoted(text)
    if header[1] == ">":
        return "text", _folded(piece.following)
    return "text", textwrap.dedent("\n".join(piece.following)).strip()


def _dashed(lines: Sequence[str]) -> list[Value]:
    items: list[list[str]] = []
    for line in map(str.strip, lines):
        if line.startswith("-") or not items:
            items.append([])
        items[-1].append(line.removeprefix("-").strip())
    joined = (" ".join(filter(None, item)) for item in items)
    return [_unquoted(item) for item in joined if item]


def _folded(lines: Sequence[str]) -> str:
    """Join *lines* to one text as YAML does: a line break becomes a space, an empty line becomes a line break."""
    paragraphs = "\n".join(map(str.strip, lines)).strip().split("\n\n")
    return "\n".join(paragraph.strip().replace("\n", " ") for paragraph in paragraphs)


def _unquoted(text: str) -> str:
    """Return *text* without quotes around it, also if the closing quote is missing or there are quotes inside."""
    quote = text[:1]
    if quote not in {'"', "'"}:
        return text
    second = re.search(rf"(?<!\\){quote}", text[1:])
    if second is None:
        return text[1:]
    behind = text[second.end() + 1 :][:1]
    # A quote before a letter is part of the text, as in "say "hi" twice"; one before a space ends a quoted first word.
    is_around = text.endswith(quote) and (not behind or behind.isalnum())
    inside = text[1:-1] if is_around else text
    return inside.replace('\\"', '"').replace("\\n", "\n") if is_around and quote == '"' else inside
