"""Glob patterns of file names, and the directories that a search leaves out."""

import fnmatch
import itertools
import re
from collections.abc import Iterator
from typing import Self

import attrs

LONGEST = 500
"""Characters of a pattern, so that braces in braces end somewhere."""
ALTERNATIVES = 64

LEFT_OUT = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Names that are passed over wherever they stand, unless the walk begins there."""

_Step = re.Pattern[str] | None
"""What one directory or file must be called; None for any number of directories."""


@attrs.frozen(kw_only=True)
class GlobPattern:
    """A pattern ready to be compared with paths; the time is linear in the path, whatever the pattern."""

    _alternatives: tuple[tuple[_Step, ...], ...]

    @classmethod
    def parse(cls, pattern: str) -> Self:
        """Raises `ValueError` for what matches nothing below a directory, or has too many alternatives."""
        if len(pattern) > LONGEST:
            raise ValueError(
                f"a pattern of file names may have {LONGEST} characters, and this one has {len(pattern):,}"
            )
        expanded = list(itertools.islice(_expand(pattern), ALTERNATIVES + 1))
        if len(expanded) > ALTERNATIVES:
            raise ValueError(f"{pattern!r} has over {ALTERNATIVES} alternatives: use fewer braces")
        return cls(alternatives=tuple(_steps(alternative, pattern) for alternative in expanded))

    def matches(self, path: str) -> bool:
        """Whether the whole of *path*, relative and with slashes, is what the pattern describes."""
        parts = path.split("/")
        return any(_fits(steps, parts) for steps in self._alternatives)


def _expand(pattern: str) -> Iterator[str]:
    """The patterns without braces that *pattern* stands for."""
    start = pattern.find("{")
    if start < 0:
        yield pattern
        return
    choices, end = _choices(pattern, start)
    for choice in choices:
        yield from _expand(pattern[:start] + choice + pattern[end:])


def _choices(pattern: str, start: int) -> tuple[list[str], int]:
    """What the braces that open at *start* offer, and where the pattern goes on behind them."""
    depth, begin = 0, start + 1
    choices: list[str] = []
    for index in range(start, len(pattern)):
        letter = pattern[index]
        depth += (letter == "{") - (letter == "}")
        if depth == 0 or (depth == 1 and letter == ","):
            choices.append(pattern[begin:index])
            begin = index + 1
        if depth == 0:
            return choices, begin
    raise ValueError(f"{pattern!r} has a {{ without its }}")


def _steps(alternative: str, pattern: str) -> tuple[_Step, ...]:
    parts = [part for part in alternative.split("/") if part not in ("", ".")]
    if alternative.startswith("/") or ".." in parts:
        raise ValueError(f"{pattern!r} leads out of the directory that is searched: name another one as path instead")
    if parts and parts[-1] == "**":
        parts.append("*")
    # The translation tries each star once only, so that no name can make it slow.
    return tuple(None if part == "**" else re.compile(fnmatch.translate(part.replace("[^", "[!"))) for part in parts)


def _fits(steps: tuple[_Step, ...], parts: list[str]) -> bool:
    """Follow all ways through *steps* at once; a way is the index of its next step."""
    ways = _skipping(steps, {0})
    for part in parts:
        ahead = set()
        for way in ways:
            if way == len(steps):
                continue
            step = steps[way]
            if step is None:
                ahead.add(way)
            elif step.match(part):
                ahead.add(way + 1)
        ways = _skipping(steps, ahead)
        if not ways:
            return False
    return len(steps) in ways


def _skipping(steps: tuple[_Step, ...], ways: set[int]) -> set[int]:
    """*ways*, and those that take a `**` for no directory at all."""
    for index, step in enumerate(steps):
        if step is None and index in ways:
            ways.add(index + 1)
    return ways
