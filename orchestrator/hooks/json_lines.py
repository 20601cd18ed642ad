"""On which line of a JSON file each of its values stands, which the parser does not tell."""

import json
import re
from collections.abc import Iterator, Mapping

import attrs

from coterie.agents.hooks.reading import Place

# A string may hold whatever else is looked for here.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\[\]{},:\n]')


@attrs.frozen
class JsonLines:
    """Lines of values, counted from 1; what stands inside a list without a table stands where that begins."""

    _by_place: Mapping[Place, int]

    @classmethod
    def of(cls, text: str) -> "JsonLines":
        """Those of *text*, which is JSON."""
        return cls(dict(_places(text)))

    def of_place(self, *place: str | int) -> int:
        """The line of the value at *place*, or of what it would stand in."""
        while place and place not in self._by_place:
            place = place[:-1]
        return self._by_place.get(place, 1)


def _places(text: str) -> Iterator[tuple[Place, int]]:
    line, steps = 1, list[str | int]()
    """Of each table or list that is open: the key or the place in it that is being read."""
    is_key = False
    for sign in _TOKEN.findall(text):
        if sign == "\n":
            line += 1
        elif sign in "{[":
            yield tuple(steps), line
            steps.append("" if sign == "{" else 0)
            is_key = sign == "{"
        elif sign in "}]":
            steps.pop()
            is_key = False
        elif sign == ",":
            last = steps[-1]
            is_key = isinstance(last, str)
            steps[-1] = last + 1 if isinstance(last, int) else last
        elif sign != ":" and is_key:
            steps[-1], is_key = json.loads(sign), False
            yield tuple(steps), line
