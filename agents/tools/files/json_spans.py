"""Positions of values in a JSON text, for edits that leave all other bytes unchanged."""

import json
import re
from typing import Any

import attrs

_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


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
        if isinstance(value, dict):
            return self.object_of({key: self.text_of(each, level + 1) for key, each in value.items()}, level)
        if isinstance(value, list):
            return self._around([self.text_of(each, level + 1) for each in value], "[]", level)
        return json.dumps(value, ensure_ascii=self.is_ascii)

    def object_of(self, members: dict[str, str], level: int) -> str:
        """Format an object at the depth *level*; *members* are already formatted for the next depth."""
        texts = [f"{json.dumps(key, ensure_ascii=self.is_ascii)}{self.colon}{text}" for key, text in members.items()]
        return self._around(texts, "{}", level)

    def space(self, level: int) -> str:
        """Return line end and indentation before a value at the depth *level*; empty if the text is on one line."""
        return f"{self.line_end}{self.indent * level}" if self.line_end else ""

    def _around(self, texts: list[str], signs: str, level: int) -> str:
        if not texts:
            return signs
        between = f",{self.space(level + 1)}" if self.line_end else self.comma
        return f"{signs[0]}{self.space(level + 1)}{between.join(texts)}{self.space(level)}{signs[1]}"
