"""Markdown as far as a check must know it: which lines are prose, and what stands in back-ticks."""

import re
from collections.abc import Iterator

_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")


def prose_lines(text: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """The lines of *text* outside of fenced code, numbered from *first*."""
    fence: str | None = None
    for number, line in enumerate(text.split("\n"), first):
        mark = _FENCE.match(line)
        if fence is None and mark is None:
            yield number, line
        elif fence is None and mark is not None:
            fence = mark[1]
        elif fence is not None and mark is not None and mark[1].startswith(fence):
            fence = None


def code_spans(line: str) -> list[str]:
    """What stands in back-ticks on *line*."""
    return [span.strip() for _, span in _SPAN.findall(line)]


def without_spans(line: str) -> str:
    """*line* without what stands in back-ticks."""
    return _SPAN.sub(" ", line)
