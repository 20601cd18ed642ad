"""Jupyter notebooks as JSON text with the position of each cell, so that a change of one cell keeps all other bytes."""

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
"""First version of the notebook format, major and minor number, in which each cell has an id."""
CELL_LEVEL = 2
"""Nesting depth of a cell in the JSON of a notebook, for its indentation; the notebook object has depth 0."""

_BYTE_ORDER_MARK = "\ufeff"


@attrs.frozen(kw_only=True)
class JsonSpan:
    """Parsed JSON value, with the start and end index of its text in the text of the notebook."""

    value: Any
    start: int
    end: int


def read_members(text: str, start: int) -> tuple[dict[str, JsonSpan], int]:
    """Parse the JSON object at index *start* of *text*; return its members by key, and the index after the object.

    Of equal keys the last is returned. Raises `ValueError` for invalid JSON, and `RecursionError` if nested too deep.
    """
    members: dict[str, JsonSpan] = {}
    place = _expect(text, start, "{")
    while text[place : place + 1] != "}":
        if members:
            place = _expect(text, place, ",")
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError(
                "the notebook is not valid JSON; correct it: expected a key in double quotes", text, place
            )
        key, place = _decoder.raw_decode(text, place)
        place = _expect(text, skip_space(text, place), ":")
        value, end = _decoder.raw_decode(text, place)
        members[key] = JsonSpan(value=value, start=place, end=end)
        place = skip_space(text, end)
    return members, place + 1


def element_starts(text: str, start: int) -> list[int]:
    """Return the index of each element of the JSON array at index *start*. Raises `ValueError` or `RecursionError`."""
    places: list[int] = []
    place = _expect(text, start, "[")
    while text[place : place + 1] != "]":
        if places:
            place = _expect(text, place, ",")
        places.append(place)
        place = skip_space(text, _decoder.raw_decode(text, place)[1])
    return places


def skip_space(text: str, place: int) -> int:
    """Return the index of the first character of *text* from index *place* on that is not JSON white space."""
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()


def _expect(text: str, place: int, sign: str) -> int:
    """Check that *sign* is at index *place*; return the index behind it and white space. Raises `ValueError` if not."""
    if text[place : place + 1] != sign:
        raise json.JSONDecodeError(f"the notebook is not valid JSON; correct it: expected {sign!r}", text, place)
    return skip_space(text, place + 1)


@attrs.frozen(kw_only=True)
class JsonLayout:
    """Formatting style of the JSON text of a notebook, so that inserted cells and values get the same style."""

    indent: str
    line_end: str
    """Line break between values, LF or CRLF; empty if the whole JSON text is on one line."""
    comma: str
    """Separator between values on the same line: a comma with or without a space."""
    colon: str
    is_ascii: bool
    """True if non-ASCII characters are written as JSON escape sequences."""

    @classmethod
    def of(cls, text: str) -> "JsonLayout":
        """Detect the formatting style of *text*, a JSON object or array, from its line breaks and separators."""
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
        """Return *value* as JSON in this style; lines after the first are indented for the nesting depth *level*."""
        indent, comma = (self.indent, ",") if self.line_end else (None, self.comma)
        text = json.dumps(value, ensure_ascii=self.is_ascii, indent=indent, separators=(comma, self.colon))
        return text.replace("\n", self.space(level))

    def object_of(self, members: dict[str, str], level: int) -> str:
        """Return a JSON object at nesting depth *level*; *members*, at least one, maps keys to values as JSON text."""
        texts = [f"{json.dumps(key, ensure_ascii=self.is_ascii)}{self.colon}{text}" for key, text in members.items()]
        between = f",{self.space(level + 1)}" if self.line_end else self.comma
        return f"{{{self.space(level + 1)}{between.join(texts)}{self.space(level)}}}"

    def space(self, level: int) -> str:
        """Return line break and indentation before a value at nesting depth *level*; empty if the JSON has one line."""
        return f"{self.line_end}{self.indent * level}" if self.line_end else ""


@attrs.frozen(kw_only=True)
class Cell:
    """One cell of a notebook: its content, and the start and end index of its JSON in the text of the notebook."""

    number: int
    """Number of the cell in the notebook, counted from 1."""
    id: str | None
    """Id of the cell; None if the file gives none, as before version 4.5 of the format."""
    type: str
    """Type of the cell, such as "code" or "markdown"; "unknown" if the file gives none."""
    source: str
    outputs: list[dict[str, Any]]
    """Outputs of the last run of the cell, as the notebook stores them: JSON objects."""
    execution_count: int | None
    """Number in the notebook's order of execution, as in `In [3]`; None if the cell was not run."""
    members: Mapping[str, JsonSpan]
    start: int
    end: int

    @classmethod
    def read(cls, text: str, number: int, start: int) -> "Cell":
        """Parse cell *number*, which begins at index *start* of *text*. Raises `ValueError` or `RecursionError`."""
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
        """Number and id of the cell for messages to the model, such as `cell 2 (id a1b2)`."""
        return f"cell {self.number}" if self.id is None else f"cell {self.number} (id {self.id})"


@attrs.frozen(kw_only=True)
class Notebook:
    """Parsed Jupyter notebook of format version 4. Editing methods return the new text and do not change the object."""

    text: str
    version: tuple[int, int]
    language: str
    cells: tuple[Cell, ...]
    _array: JsonSpan
    """List of cells as parsed JSON, with the start and end index of its text."""

    @classmethod
    def read(cls, text: str) -> "Notebook":
        """Parse *text*, the content of an .ipynb file. Raises `ValueError` if it is not a notebook of version 4."""
        try:
            return cls._parse(text)
        except RecursionError as exc:
            raise ValueError("the JSON of the notebook is nested too deep to be parsed; flatten it") from exc

    @classmethod
    def _parse(cls, text: str) -> "Notebook":
        start = skip_space(text, int(text.startswith(_BYTE_ORDER_MARK)))
        members, end = read_members(text, start)
        if skip_space(text, end) != len(text):
            raise ValueError("the notebook has text after the end of its JSON; remove that text")
        values = {name: member.value for name, member in members.items()}
        version = (values.get("nbformat"), values.get("nbformat_minor", 0))
        if version[0] != 4 or not isinstance(version[1], int):
            raise ValueError(f"nbformat is {version[0]!r}, but only 4 is supported; convert the notebook to version 4")
        if not isinstance(values.get("cells"), list) or not all(isinstance(each, dict) for each in values["cells"]):
            raise ValueError("the notebook has no list of cells; add the key cells with a list of objects")
        array = members["cells"]
        return cls(
            text=text,
            version=(4, version[1]),
            language=_language(values.get("metadata")),
            cells=tuple(Cell.read(text, n, start) for n, start in enumerate(element_starts(text, array.start), 1)),
            array=array,
        )

    def find(self, id_: str | None, number: int | None) -> Cell:
        """Return the cell with *number* or *id_*, or both. Raises `ValueError` unless exactly one cell fits."""
        if number is not None:
            if not 1 <= number <= len(self.cells):
                raise ValueError(f"there is no cell {number}: the notebook has {len(self)} cells; read it again")
            if id_ is not None and self.cells[number - 1].id != id_:
                raise ValueError(f"cell {number} has the id {self.cells[number - 1].id!r}, not {id_!r}; omit one")
            return self.cells[number - 1]
        found = [cell for cell in self.cells if cell.id == id_]
        if len(found) > 1:
            numbers = ", ".join(str(cell.number) for cell in found)
            raise ValueError(f"{len(found)} cells have the id {id_!r}; give a cell_number instead: one of {numbers}")
        if not found:
            ids = [cell.id for cell in self.cells if cell.id is not None]
            hint = did_you_mean(str(id_), ids) if ids else "no cell of the notebook has an id; give a cell_number"
            raise ValueError(f"there is no cell with the id {id_!r}; {hint}")
        return found[0]

    def replaced(self, cell: Cell, source: str, type_: CellType | None = None) -> str:
        """Return the text with *source* and *type_* (None: as before) in *cell*; new code or type removes outputs."""
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
        """Return the notebook text with a new cell behind cell number *after*; 0 puts it at the beginning."""
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
        """Return the notebook text without *cell*."""
        if len(self.cells) == 1:
            return f"{self.text[: self._array.start]}[]{self.text[self._array.end :]}"
        if cell.number < len(self.cells):
            return self.text[: cell.start] + self.text[self.cells[cell.number].start :]
        return self.text[: self.cells[-2].end] + self.text[cell.end :]

    def __len__(self) -> int:
        return len(self.cells)

    def _with_values(self, cell: Cell, changed: Mapping[str, Any], layout: JsonLayout) -> str:
        """Return the notebook text with the new values *changed* in *cell*; ignores keys that *cell* does not have."""
        text = self.text
        spans = {name: span for name, span in cell.members.items() if name in changed}
        for name, span in sorted(spans.items(), key=lambda each: each[1].start, reverse=True):
            if span.value != changed[name]:
                text = text[: span.start] + layout.text_of(changed[name], CELL_LEVEL + 1) + text[span.end :]
        return text

    def _has_lists(self, cell: Cell | None) -> bool:
        """Return True if the source of *cell* (None: of the first cell) is a list of lines, False if one string."""
        cells = [cell] if cell is not None else self.cells[:1]
        sources = (each.members["source"].value for each in cells if "source" in each.members)
        return not any(isinstance(source, str) for source in sources)

    def _between(self, layout: JsonLayout) -> str:
        """Return the white space to write between the comma behind a cell and the next cell."""
        if len(self.cells) > 1:
            return self.text[self.cells[0].end : self.cells[1].start].partition(",")[2]
        return layout.space(CELL_LEVEL) or layout.comma[1:]

    def _new_id(self, after: int, source: str) -> str:
        """Return an unused cell id. Equal notebooks and arguments give equal ids, so that a run can be reproduced."""
        taken = {cell.id for cell in self.cells}
        seeds = (f"{attempt} {after} {sorted(map(str, taken))} {source}" for attempt in itertools.count())
        ids = (hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=4).hexdigest() for seed in seeds)
        return next(id_ for id_ in ids if id_ not in taken)


def joined(value: Any) -> str:
    """Return *value*, a text stored as one string or as a list of lines, as one string; empty for other values."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _lines(source: str, *, is_list: bool) -> list[str] | str:
    return source.splitlines(keepends=True) if is_list else source


def _language(metadata: Any) -> str:
    """Return the programming language that *metadata* of a notebook names, such as "python"; else "unknown"."""
    for part, name in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(part) if isinstance(metadata, dict) else None
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return str(found[name])
    return "unknown"
