"""Fenced code blocks in Markdown."""

import re
from collections.abc import Iterable, Iterator

_FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?(?P<mark>`{3,}|~{3,})(?P<rest>.*)")


def fence_after(line: str, fence: str | None) -> str | None:
    """Return the fence, such as three backticks, of the code block that is open after *line*; None outside of code.

    *fence* is the result for the previous line.
    """
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if fence is not None:
        return None if mark["mark"].startswith(fence) and not mark["rest"].strip() else fence
    # A line such as ```x``` is a code span, because the rest of an opening line has no backticks.
    return None if mark["mark"].startswith("`") and "`" in mark["rest"] else mark["mark"]


def lines_with_code(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line, with True if the line is part of a fenced code block or is one of the two fences."""
    fence: str | None = None
    for line in lines:
        before, fence = fence, fence_after(line, fence)
        yield line, before is not None or fence is not None
