"""Glob patterns for file names, and the directories that a search ignores."""

import fnmatch
import itertools
import re
from collections.abc import Iterator
from typing import Self

import attrs

MAX_PATTERN_LENGTH = 500
"""Maximum number of characters in a pattern; this also limits the expansion of nested braces."""
MAX_ALTERNATIVES = 64

LEFT_OUT = frozenset({".git", "node_modules", ".venv", "__pycache__"})
"""Names of files and directories that a search ignores, unless it starts inside one."""

_Step = re.Pattern[str] | None
"""Pattern for one path component; None stands for `**` and matches any number of directories."""


@attrs.frozen(kw_only=True)
class GlobPattern:
    """A compiled glob pattern. The time to match grows linearly with the path, so no pattern makes a search hang."""

    _alternatives: tuple[tuple[_Step, ...], ...]

    @classmethod
    def parse(cls, pattern: str) -> Self:
        """Compile *pattern*, in which braces list alternatives, as in `*.{js,ts}`.

        Raises `ValueError` if *pattern* is too long, has unbalanced braces or too many alternatives, or could match
        paths outside of the searched directory.
        """
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise ValueError(
                f"the file pattern has {len(pattern):,} characters; shorten it to at most {MAX_PATTERN_LENGTH}"
            )
        expanded = list(itertools.islice(_expand(pattern), MAX_ALTERNATIVES + 1))
        if len(expanded) > MAX_ALTERNATIVES:
            raise ValueError(
                f"the file pattern {pattern!r} has more than {MAX_ALTERNATIVES} alternatives; use fewer braces"
            )
        return cls(alternatives=tuple(_steps(alternative, pattern) for alternative in expanded))

    def matches(self, path: str) -> bool:
        """Return True if the pattern matches the whole of *path*, a relative path with slashes."""
        parts = path.split("/")
        return any(_fits(steps, parts) for steps in self._alternatives)


def _expand(pattern: str) -> Iterator[str]:
    """Yield each pattern without braces that *pattern* stands for: `*.js` and `*.ts` for `*.{js,ts}`."""
    start = pattern.find("{")
    if start < 0:
        yield pattern
        return
    choices, end = _choices(pattern, start)
    for choice in choices:
        yield from _expand(pattern[:start] + choice + pattern[end:])


def _choices(pattern: str, start: int) -> tuple[list[str], int]:
    """Return the choices in the braces at index *start*, and the index after them. Raises `ValueError` if unclosed."""
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
    raise ValueError(f"the file pattern {pattern!r} has a {{ without a matching }}; add the closing brace")


def _steps(alternative: str, pattern: str) -> tuple[_Step, ...]:
    parts = [part for part in alternative.split("/") if part not in ("", ".")]
    if alternative.startswith("/") or ".." in parts:
        raise ValueError(
            f"the file pattern {pattern!r} leads out of the searched directory; give the other directory as `path`"
        )
    if parts and parts[-1] == "**":
        parts.append("*")
    # fnmatch.translate makes a regular expression without backtracking over stars, so no name can make it slow.
    return tuple(None if part == "**" else re.compile(fnmatch.translate(part.replace("[^", "[!"))) for part in parts)


def _fits(steps: tuple[_Step, ...], parts: list[str]) -> bool:
    """Return True if the pattern *steps* match the path components *parts*; follows all possibilities in parallel."""
    positions = _skip_empty(steps, {0})
    for part in parts:
        ahead = set()
        for position in positions:
            if position == len(steps):
                continue
            step = steps[position]
            if step is None:
                ahead.add(position)
            elif step.match(part):
                ahead.add(position + 1)
        positions = _skip_empty(steps, ahead)
        if not positions:
            return False
    return len(steps) in positions


def _skip_empty(steps: tuple[_Step, ...], positions: set[int]) -> set[int]:
    """Return *positions*, indexes in *steps*, with each index behind a `**` added, as `**` may match no directory."""
    for index, step in enumerate(steps):
        if step is None and index in positions:
            positions.add(index + 1)
    return positions
