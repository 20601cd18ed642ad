"""A rule among instruction files: its front matter says for which files it holds."""

import re
from collections.abc import Iterator

import attrs

from coterie.memory.front_matter import Note, Value, read_front_matter

_COMMA = re.compile(r",(?![^{]*\})")
"""Between two patterns; a comma in `*.{ts,tsx}` is none."""


@attrs.frozen(kw_only=True)
class RuleText:
    """A rule in two parts."""

    text: str
    """Without its front matter."""
    paths: tuple[str, ...] = ()
    """Patterns of the files that it is for; none for a rule that always holds."""
    notes: tuple[Note, ...] = ()


def read_rule(text: str) -> RuleText:
    """Read *text*, whatever it is; never raises."""
    front = read_front_matter(text)
    if front.line is None:
        return RuleText(text=text)
    paths = (path.strip() for path in _texts(front.fields.get("paths", [])))
    return RuleText(text=front.body, paths=tuple(filter(None, paths)), notes=tuple(front.notes))


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield from _COMMA.split(value)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
