"""Fenced code blocks in Markdown."""

import re
from collections.abc import Iterable, Iterator

_FENCE = re.compile(r"[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?(?P<mark>`{3,}|~{3,})(?P<rest>.*)")


def fence_after(line: str, fence: str | None) -> str | None:
    """Return the fence that closes the code block open after *line*; *fence* is that of the block open before it."""
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if fence is not None:
        return None if mark["mark"].startswith(fence) and not mark["rest"].strip() else fence
    # A line such as ```x``` is a code span, because the rest of an opening line has no backticks.
    return None if mark["mark"].startswith("`") and "`" in mark["rest"] else mark["mark"]


def lines_with_code(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line, with True if it belongs to a fenced code block or is one of its fences."""
    fence: str | None = None
    for line in lines:
        before, fence = fence, fence_after(line, fence)
        yield line, before is not None or fence is not None
