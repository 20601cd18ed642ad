"""Parser of a YAML mapping into strings, lists and dictionaries, built on the event parser of libyaml.

The complete parser of libyaml recurses on the C stack, so that deeply nested YAML would crash the process.
"""

import re
from bisect import bisect_left
from typing import Any, TypeAlias

import attrs
import yaml

Value: TypeAlias = str | list["Value"] | dict[str, "Value"]

DEPTH = 20
"""Largest depth to which lists and mappings may be nested; deeper YAML counts as invalid."""
SHOWN = 60
"""Largest number of characters of a text from the file that a warning quotes."""

_COMMENT = re.compile(r"[ \t]+(#\S[^\n]*)")
"""Pattern of `#` directly before text, as in `issue #3`: a comment in YAML, but probably meant as text."""


@attrs.frozen
class FieldWarning:
    """Warning about a part of the front matter (YAML fields of a Markdown file) that was ignored or corrected."""

    line: int
    """Number of the line in the file to which the warning refers, from 1."""
    reason: str


def quote_text(text: str) -> str:
    """Return *text* in quotes for a warning: on one line, and cut after `SHOWN` characters."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


@attrs.define(eq=False)
class YamlFields:
    """The fields of one YAML mapping in file order, with their line numbers and warnings."""

    values: dict[str, Value] = attrs.field(factory=dict)
    lines: dict[str, int] = attrs.field(factory=dict)
    """Maps the key of each field to its line number in the file, from 1."""
    notes: list[FieldWarning] = attrs.field(factory=list)

    def begin(self, key: str, line: int) -> None:
        """Record that the field *key* begins in *line*; add a warning if it is repeated (the last value counts)."""
        if key in self.lines:
            self.notes.append(
                FieldWarning(line, f"{quote_text(key)} is repeated; delete line {self.lines[key]}, which is ignored")
            )
        self.lines[key] = line


@attrs.define(eq=False)
class YamlInvalid(Exception):
    """A text cannot be parsed as a YAML mapping: it is invalid, another type of value, or nested too deeply."""

    line: int
    reason: str


def parse_fields(text: str, first_line: int = 1) -> YamlFields:
    """Parse *text* as one YAML mapping, in which numbers and other scalars stay strings. Raises only `YamlInvalid`.

    *first_line* is the line number of the first line of *text* in its file, for warnings and errors.
    """
    builder = _Builder(text=text, first_line=first_line)
    try:
        for event in yaml.parse(text, yaml.CBaseLoader):
            builder.handle(event)
    except yaml.MarkedYAMLError as exc:
        line = first_line if exc.problem_mark is None else builder.line(exc.problem_mark)
        raise YamlInvalid(line, exc.problem or "not readable") from exc
    except (yaml.YAMLError, UnicodeEncodeError) as exc:
        raise YamlInvalid(first_line, "the text has characters that YAML does not allow; remove them") from exc
    return builder.finish()


@attrs.define(eq=False)
class _Open:
    """A YAML list or mapping that the parser is still reading."""

    value: list[Value] | dict[str, Value]
    fields: YamlFields | None
    """Record of the keys of a mapping, with their lines; None for a list."""
    key: str | None = None


@attrs.define(eq=False, kw_only=True)
class _Builder:
    text: str
    first_line: int
    root: Value | None = None
    top: YamlFields = attrs.field(factory=YamlFields)
    anchors: dict[str, str] = attrs.field(factory=dict)
    opened: list[_Open] = attrs.field(factory=list)
    breaks: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.breaks = [at for at, character in enumerate(self.text) if character == "\n"]

    def line(self, mark: Any) -> int:
        # Counted here, because libyaml counts more line breaks than editors do.
        return self.first_line + bisect_left(self.breaks, mark.index)

    def handle(self, event: yaml.Event) -> None:
        line = self.line(event.start_mark)
        match event:
            case yaml.ScalarEvent():
                self._add(self._scalar(event, line), line)
            case yaml.AliasEvent(anchor=str(anchor)):
                if anchor not in self.anchors:
                    raise YamlInvalid(line, f"{quote_text('*' + anchor)} is an unknown alias; quote it if it is text")
                self._add(self.anchors[anchor], line)
            case yaml.SequenceStartEvent():
                self._open(_Open([], None), line)
            case yaml.MappingStartEvent():
                fields = YamlFields(notes=self.top.notes) if self.opened else self.top
                self._open(_Open(fields.values, fields), line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._add(self.opened.pop().value, line)
            case yaml.DocumentStartEvent() if self.root is not None:
                raise YamlInvalid(line, "a second YAML document starts here; remove the `---` line before it")

    def finish(self) -> YamlFields:
        if self.root is not None and self.root is not self.top.values:
            raise YamlInvalid(self.first_line, "the text is not a mapping; write lines `key: value`")
        return self.top

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> str:
        value: str = event.value
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        for sign, word in (("&", event.anchor), ("", event.tag)):
            if word is not None:
                self._note(
                    line,
                    f"{quote_text(sign + word)} is YAML syntax, not part of the value; quote the value to keep it",
                )
        end: Any = event.end_mark
        if not event.style and (found := _COMMENT.match(self.text, end.index)):
            reason = f"{quote_text(found[1])} is ignored as a YAML comment; quote the whole value to keep it"
            self._note(self.line(end), reason)
        return value

    def _note(self, line: int, reason: str) -> None:
        self.top.notes.append(FieldWarning(line, reason))

    def _open(self, opened: _Open, line: int) -> None:
        if len(self.opened) == DEPTH:
            raise YamlInvalid(line, f"lists and mappings are nested more than {DEPTH} levels deep; use fewer levels")
        self.opened.append(opened)

    def _add(self, value: Value, line: int) -> None:
        if not self.opened:
            self.root = value
            return
        above = self.opened[-1]
        if isinstance(above.value, list):
            above.value.append(value)
        elif above.key is not None:
            above.value[above.key] = value
            above.key = None
        elif isinstance(value, str) and above.fields is not None:
            above.fields.begin(value, line)
            above.key = value
        else:
            raise YamlInvalid(line, "a key is a list or a mapping; use text as the key")
