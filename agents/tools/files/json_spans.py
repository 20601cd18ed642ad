"""Spans of values in a JSON text, for edits that leave all other bytes as they are."""

import json
import re
from typing import Any

import attrs

_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


@attrs.frozen(kw_only=True)
class JsonSpan:
    """A value, and where its text is."""

    value: Any
    start: int
    end: int


def read_members(text: str, start: int) -> tuple[dict[str, JsonSpan], int]:
    """The members of the object that begins at *start*, and the place behind it. Of equal keys the last counts.

    Raises `ValueError` for what is no object, and `RecursionError` for one that is nested too deep.
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
    """Where each element of the array at *start* begins. Raises as `read_members`."""
    places: list[int] = []
    place = _expect(text, start, "[")
    while text[place : place + 1] != "]":
        if places:
            place = _expect(text, place, ",")
        places.append(place)
        place = skip_space(text, _decoder.raw_decode(text, place)[1])
    return places


def skip_space(text: str, place: int) -> int:
    """The first place from *place* on where there is something."""
    match = _SPACE.match(text, place)
    assert match is not None
    return match.end()


def _expect(text: str, place: int, sign: str) -> int:
    """The place behind *sign* and the space that follows it."""
    if text[place : place + 1] != sign:
        raise json.JSONDecodeError(f"Expecting {sign!r}", text, place)
    return skip_space(text, place + 1)


@attrs.frozen(kw_only=True)
class JsonLayout:
    """How a JSON text is set, so that what is put into it looks like the rest."""

    indent: str
    line_end: str
    """Empty for a text without lines."""
    comma: str
    """Between what stands on one line."""
    colon: str
    is_ascii: bool
    """Whether other characters are escaped."""

    @classmethod
    def of(cls, text: str) -> "JsonLayout":
        """How *text*, an object or array, is set."""
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
        """*value* as it stands *level* steps deep."""
        if isinstance(value, dict):
            return self.object_of({key: self.text_of(each, level + 1) for key, each in value.items()}, level)
        if isinstance(value, list):
            return self._around([self.text_of(each, level + 1) for each in value], "[]", level)
        return json.dumps(value, ensure_ascii=self.is_ascii)

    def object_of(self, members: dict[str, str], level: int) -> str:
        """An object *level* steps deep whose values are texts already, set for a step deeper."""
        texts = [f"{json.dumps(key, ensure_ascii=self.is_ascii)}{self.colon}{text}" for key, text in members.items()]
        return self._around(texts, "{}", level)

    def space(self, level: int) -> str:
        """What stands before something on a line of its own, *level* steps deep."""
        return f"{self.line_end}{self.indent * level}" if self.line_end else ""

    def _around(self, texts: list[str], signs: str, level: int) -> str:
        if not texts:
            return signs
        between = f",{self.space(level + 1)}" if self.line_end else self.comma
        return f"{signs[0]}{self.space(level + 1)}{between.join(texts)}{self.space(level)}{signs[1]}"
