"""Notebooks as text with positions: a change of one cell leaves the bytes of all other cells unchanged."""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from coterie.suggestions import did_you_mean

_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")

SUFFIX = ".ipynb"
CellType = Literal["code", "markdown", "raw"]
IDS_SINCE = (4, 5)
"""First version of the format in which cells have ids."""
CELL_LEVEL = 2
"""Nesting depth of a cell in the JSON of a notebook."""

_BYTE_ORDER_MARK = "\ufeff"


@attrs.frozen(kw_only=True)
class JsonSpan:
    """A JSON value with the position of its text."""

    value: Any
    start: int
    end: int


def read_members(text: str, start: int) -> tuple[dict[str, JsonSpan], int]:
    """Parse the object at *start*; return its members and the position after it. The last of equal keys wins.

    Raises `ValueError` if there is no object, and `RecursionError` if it is nested too deep.
    """
    members: dict[str, JsonSpan] = {}
    place = _expect(text, start, "{")
    while text[place : place + 1] != "}":
        if members:
            place = _expect(text, place, ",")
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
        key, place = _decoder.raw_decode(text, place)
        place = _expect(text, skip_space(text, place), ":")
        value, end = _decoder.raw_decode(text, place)
        members[key] = JsonSpan(value=value, start=place, end=end)
        place = skip_space(text, end)
    return members, place + 1


def element_starts(text: str, start: int) -> list[int]:
    """Return the start of each element of the array at *start*. Raises like `read_members`."""
    places: list[int] = []
    place = _expect(text, start, "[")
    while text[place : place + 1] != "]":
        if places:
            place = _expect(text, place, ",")
        places.append(place)
        place = skip_space(text, _decoder.raw_decode(text, place)[1])
    return places


def skip_space(text: str, place: int) -> int:
    """Return the first position from *place* on that is not white space."""
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()


def _expect(text: str, place: int, sign: str) -> int:
    """Return the position after *sign* and the white space that follows it. Raises `ValueError` without *sign*."""
    if text[place : place + 1] != sign:
        raise json.JSONDecodeError(f"Expecting {sign!r}", text, place)
    return skip_space(text, place + 1)


@attrs.frozen(kw_only=True)
class JsonLayout:
    """Formatting of a JSON text, so that inserted values look like the rest."""

    indent: str
    line_end: str
    """Line end; empty if the text is on one line."""
    comma: str
    """Separator of values on one line."""
    colon: str
    is_ascii: bool
    """True if non-ASCII characters are escaped."""

    @classmethod
    def of(cls, text: str) -> "JsonLayout":
        """Detect the formatting of *text*, an object or array."""
        opening = re.search(r"[\[{]([ \t\r\n]*)", text)
        space = opening[1] if opening else ""
        line_end = "\r\n" if "\r\n" in space else "\n" if "\n" in space else ""
        has_escaped = re.search(r"\\u(?!00[0-7])[0-9a-fA-F]{4}", text) is not None
        return cls(
            indent=space.rpartition("\n")[2] if line_end else "",
            line_end=line_end,
            comma=", " if re.search(r'[\]"}0-9el], "', text) else ",",
            colon=": " if re.search(r'"\s*: ', text) else ":",
            is_ascii=has_escaped and text.isascii(),
        )

    def text_of(self, value: Any, level: int) -> str:
        """Format *value* at the nesting depth *level*."""
        indent, comma = (self.indent, ",") if self.line_end else (None, self.comma)
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=indent, separators=(comma, self.colon))
        return text.replace("\n", self.space(level))

    def object_of(self, members: dict[str, str], level: int) -> str:
        """Format an object at the depth *level*; *members*, at least one, are already formatted for the next depth."""
        texts = [f"{json.dumps(key, ensure_ascii=self.is_ascii)}{self.colon}{text}" for key, text in members.items()]
        between = f",{self.space(level + 1)}" if self.line_end else self.comma
        return f"{{{self.space(level + 1)}{between.join(texts)}{self.space(level)}}}"

    def space(self, level: int) -> str:
        """Return line end and indentation before a value at the depth *level*; empty if the text is on one line."""
        return f"{self.line_end}{self.indent * level}" if self.line_end else ""


@attrs.frozen(kw_only=True)
class Cell:
    """One cell of a notebook, with its position in the text."""

    number: int
    """Position in the notebook, counted from 1."""
    id: str | None
    """Id of the cell; None in older notebooks."""
    type: str
    """Type of the cell; "unknown" if it is missing."""
    source: str
    outputs: list[dict[str, Any]]
    """Outputs that the notebook has stored for the cell."""
    execution_count: int | None
    """Execution number of the last run; None if the cell was not run."""
    members: Mapping[str, JsonSpan]
    start: int
    end: int

    @classmethod
    def read(cls, text: str, number: int, start: int) -> "Cell":
        """Parse the cell at *start*. Raises `ValueError` and `RecursionError` as `read_members` does."""
        members, end = read_members(text, start)
        values = {name: span.value for name, span in members.items()}
        id_, outputs, count = values.get("id"), values.get("outputs"), values.get("execution_count")
        return cls(
            number=number,
            id=id_ if isinstance(id_, str) else None,
            type=str(values.get("cell_type") or "unknown"),
            source=joined(values.get("source")),
            outputs=[each for each in outputs if isinstance(each, dict)] if isinstance(outputs, list) else [],
            execution_count=count if isinstance(count, int) else None,
            members=members,
            start=start,
            end=end,
        )

    @property
    def label(self) -> str:
        """Number and id of the cell, for messages to the model."""
        return f"cell {self.number}" if self.id is None else f"cell {self.number} (id {self.id})"


@attrs.frozen(kw_only=True)
class Notebook:
    """A notebook of version 4."""

    text: str
    version: tuple[int, int]
    language: str
    cells: tuple[Cell, ...]
    _array: JsonSpan
    """Position of the list of cells in the text."""

    @classmethod
    def read(cls, text: str) -> "Notebook":
        """Parse *text*. Raises `ValueError` with a readable reason if it is not a notebook of version 4."""
        try:
            return cls._parse(text)
        except RecursionError as exc:
            raise ValueError("the JSON is nested too deep") from exc

    @classmethod
    def _parse(cls, text: str) -> "Notebook":
        start = skip_space(text, int(text.startswith(_BYTE_ORDER_MARK)))
        members, end = read_members(text, start)
        if skip_space(text, end) != len(text):
            raise ValueError("there is text after the end of the JSON")
        values = {name: member.value for name, member in members.items()}
        version = (values.get("nbformat"), values.get("nbformat_minor", 0))
        if version[0] != 4 or not isinstance(version[1], int):
            raise ValueError(f"nbformat is {version[0]!r}, but only version 4 is supported")
        if not isinstance(values.get("cells"), list) or not all(isinstance(each, dict) for each in values["cells"]):
            raise ValueError("the notebook has no list of cells")
        array = members["cells"]
        return cls(
            text=text,
            version=(4, version[1]),
            language=_language(values.get("metadata")),
            cells=tuple(Cell.read(text, n, start) for n, start in enumerate(element_starts(text, array.start), 1)),
            array=array,
        )

    def find(self, id_: str | None, number: int | None) -> Cell:
        """Return the cell with this id or number. Raises `ValueError` that lists the existing cells."""
        if number is not None:
            if not 1 <= number <= len(self.cells):
                raise ValueError(f"there is no cell {number}: the notebook has {len(self)} cells, counted from 1")
            if id_ is not None and self.cells[number - 1].id != id_:
                raise ValueError(f"cell {number} has the id {self.cells[number - 1].id!r}, not {id_!r}")
            return self.cells[number - 1]
        found = [cell for cell in self.cells if cell.id == id_]
        if len(found) > 1:
            numbers = ", ".join(str(cell.number) for cell in found)
            raise ValueError(f"{len(found)} cells have the id {id_!r}: give one cell_number of {numbers}")
        if not found:
            ids = [cell.id for cell in self.cells if cell.id is not None]
            hint = did_you_mean(str(id_), ids) if ids else "its cells have no ids; give a cell_number"
            raise ValueError(f"there is no cell with the id {id_!r}: {hint}")
        return found[0]

    def replaced(self, cell: Cell, source: str, type_: CellType | None = None) -> str:
        """Return the text with a new source of *cell*; removes the outputs of code if it has changed."""
        layout = JsonLayout.of(self.text)
        changed: dict[str, Any] = {}
        if source != cell.source:
            changed["source"] = _lines(source, is_list=self._has_lists(cell))
        new_type = type_ or cell.type
        if new_type == "code" and (changed or cell.type != "code"):
            changed |= {"execution_count": None, "outputs": []}
        if new_type == cell.type and "source" in cell.members:
            return self._with_values(cell, changed, layout)
        changed["cell_type"] = new_type
        removed = {"attachments"} if new_type == "code" else {"execution_count", "outputs"}
        texts = {name: self.text[each.start : each.end] for name, each in cell.members.items() if name not in removed}
        is_sorted = list(texts) == sorted(texts)
        texts |= {name: layout.text_of(value, CELL_LEVEL + 1) for name, value in changed.items()}
        texts = dict(sorted(texts.items())) if is_sorted else texts
        return self.text[: cell.start] + layout.object_of(texts, CELL_LEVEL) + self.text[cell.end :]

    def inserted(self, after: int, source: str, type_: CellType) -> str:
        """Return the text with a new cell after the first *after* cells."""
        layout = JsonLayout.of(self.text)
        value: dict[str, Any] = {"cell_type": type_}
        if type_ == "code":
            value["execution_count"] = None
        if self.version >= IDS_SINCE:
            value["id"] = self._new_id(after, source)
        value["metadata"] = {}
        if type_ == "code":
            value["outputs"] = []
        value["source"] = _lines(source, is_list=self._has_lists(None))
        cell = layout.text_of(value, CELL_LEVEL)
        if not self.cells:
            array = f"[{layout.space(CELL_LEVEL)}{cell}{layout.space(CELL_LEVEL - 1)}]"
            return self.text[: self._array.start] + array + self.text[self._array.end :]
        if after == 0:
            first = self.cells[0].start
            return f"{self.text[:first]}{cell},{self._between(layout)}{self.text[first:]}"
        last = self.cells[after - 1].end
        return f"{self.text[:last]},{self._between(layout)}{cell}{self.text[last:]}"

    def without(self, cell: Cell) -> str:
        """Return the text without *cell*."""
        if len(self.cells) == 1:
            return f"{self.text[: self._array.start]}[]{self.text[self._array.end :]}"
        if cell.number < len(self.cells):
            return self.text[: cell.start] + self.text[self.cells[cell.number].start :]
        return self.text[: self.cells[-2].end] + self.text[cell.end :]

    def __len__(self) -> int:
        return len(self.cells)

    def _with_values(self, cell: Cell, changed: Mapping[str, Any], layout: JsonLayout) -> str:
        """Return the text with *changed* values of existing members of *cell*; adds no members."""
        text = self.text
        spans = {name: span for name, span in cell.members.items() if name in changed}
        for name, span in sorted(spans.items(), key=lambda each: each[1].start, reverse=True):
            if span.value != changed[name]:
                text = text[: span.start] + layout.text_of(changed[name], CELL_LEVEL + 1) + text[span.end :]
        return text

    def _has_lists(self, cell: Cell | None) -> bool:
        """Return True if the source of *cell*, or else of the first cell, is a list of lines, which is usual."""
        cells = [cell] if cell is not None else self.cells[:1]
        sources = (each.members["source"].value for each in cells if "source" in each.members)
        return not any(isinstance(source, str) for source in sources)

    def _between(self, layout: JsonLayout) -> str:
        """Return the white space between a comma and the next cell."""
        if len(self.cells) > 1:
            return self.text[self.cells[0].end : self.cells[1].start].partition(",")[2]
        return layout.space(CELL_LEVEL) or layout.comma[1:]

    def _new_id(self, after: int, source: str) -> str:
        """Return an unused id; the same change gives the same id, so that a run can be reproduced."""
        taken = {cell.id for cell in self.cells}
        seeds = (f"{attempt} {after} {sorted(map(str, taken))} {source}" for attempt in itertools.count())
        ids = (hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=4).hexdigest() for seed in seeds)
        return next(id_ for id_ in ids if id_ not in taken)


def joined(value: Any) -> str:
    """Join a text that a notebook stores as one string or as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _lines(source: str, *, is_list: bool) -> list[str] | str:
    return source.splitlines(keepends=True) if is_list else source


def _language(metadata: Any) -> str:
    """Return the programming language in the metadata of a notebook; "unknown" if it is missing."""
    for part, name in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return "unknown"
