"""The Edit tool: replaces a text in a file, either its only occurrence or, on request, all occurrences."""

import difflib
import heapq
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.write import change_file
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import LARGEST, FileVersion

AROUND = 3
"""Number of unchanged lines before and after an edit that the result of the edit shows."""
SHOWN = 20
"""Maximum number of lines of the file that the result of an edit shows."""
WIDTH = 200
"""Maximum characters of a line that a result shows, or that are compared to find a similar line."""
MAX_MATCHES = 10
"""Maximum number of line numbers that the error for an ambiguous `old_string` lists."""
COMPARED = 5_000
"""Number of lines at the start of a file among which a line similar to a missing `old_string` is searched."""
CANDIDATES = 20
"""Number of the best lines of a quick comparison that are compared exactly, to find the line most similar to a text."""
SIMILARITY = 0.5

_BARE_LINE_END = re.compile(r"(?<!\r)\n")


@attrs.frozen(kw_only=True)
class EditInput:
    """Arguments of a call of the Edit tool, which replaces a text in a file."""

    file_path: Annotated[str, "The file, absolute or relative to the project directory."]
    old_string: Annotated[str, "The text to replace, exactly as in the file."]
    new_string: Annotated[str, "The new text; empty to delete the old one."]
    replace_all: Annotated[bool, "Replace every occurrence, instead of the only one."] = False


class Edit(BuiltInTool, name="Edit", input_type=EditInput, access="edit", is_clearable=True):
    """Tool with which the model replaces a text in a file that the model has read."""

    def paths_affected(self, arguments: EditInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the file to edit, for the permission check."""
        return [workspace.target(arguments.file_path).path]

    async def run(self, arguments: EditInput, workspace: Workspace) -> ToolResult:
        """Replace the text and return the changed lines. Raises `ToolFailed`, such as for an ambiguous text."""
        if not arguments.old_string:
            raise ToolFailed("old_string is empty. Give the text to replace; to fill a file, use Write.")
        return await change_file(arguments.file_path, workspace, partial(_edit, arguments))


def _edit(arguments: EditInput, existing: FileVersion | None) -> tuple[str, str]:
    assert existing is not None, "`change_file` passes an existing file"
    text = existing.text
    old, new = _with_line_ends_of(text, arguments.old_string, arguments.new_string)
    if old == new:
        raise ToolFailed("old_string and new_string are equal, so nothing would change. Give another new_string.")
    _check_matches(arguments, text, old)
    count = text.count(old)
    if len(text) + count * (len(new) - len(old)) > LARGEST:
        raise ToolFailed(f"The edit would make {arguments.file_path} exceed {LARGEST // 1024**2} MB; insert less text")
    edited = text.replace(old, new)
    report = f"edited {arguments.file_path}: {count:,} replacement{'s' * (count != 1)}"
    return edited, "\n".join([report, *_lines_around(edited, text.index(old), len(new))])


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    r"""Return *old* and *new* with \n replaced by \r\n, if *text*, the content of a file, has \r\n line ends.

    Returns both unchanged if *old* contains \r, or if *text* has both kinds of line ends and contains *old*.
    """
    is_mixed = text.count("\r\n") != text.count("\n")
    if "\r\n" not in text or "\r" in old or (is_mixed and old in text):
        return old, new
    return _BARE_LINE_END.sub("\r\n", old), _BARE_LINE_END.sub("\r\n", new)


def _check_matches(arguments: EditInput, text: str, old: str) -> None:
    positions = list(islice(_match_positions(text, old), MAX_MATCHES + 1))
    if not positions:
        raise ToolFailed(f"old_string was not found in {arguments.file_path}. {_hint(text, old)}")
    if len(positions) == 1 or arguments.replace_all:
        return
    lines = ", ".join(f"{text.count(chr(10), 0, position) + 1:,}" for position in positions[:MAX_MATCHES])
    raise ToolFailed(
        f"old_string occurs {max(len(positions), text.count(old)):,} times in {arguments.file_path}, on lines {lines}"
        f"{' and more' * (len(positions) > MAX_MATCHES)}. Add surrounding text to old_string, or set replace_all."
    )


def _match_positions(text: str, old: str) -> Iterator[int]:
    """Yield each index at which *old* occurs in *text*, also if occurrences overlap, because they are ambiguous too."""
    position = text.find(old)
    while position >= 0:
        yield position
        position = text.find(old, position + 1)


def _hint(text: str, old: str) -> str:
    """Return a hint for the error that *old* does not occur in *text*: the most similar place in *text*, if any."""
    if number := _line_ignoring_space(text, old):
        return f"It differs only in white space from the text that begins on line {number:,}; copy that text exactly."
    if found := _closest_line(text, old):
        number, line = found
        return f"Copy the text from the file; the most similar line is {number:,}:\n{number:6}\t{line}"
    return "No line of the file is similar to it; read the file again."


def _line_ignoring_space(text: str, old: str) -> int | None:
    """Return the number of the line in *text* on which *old* begins, ignoring all white space; None if nowhere."""
    squeezed = _without_space(old)
    position = _without_space(text).find(squeezed)
    if not squeezed or position < 0:
        return None
    for number, line in enumerate(text.split("\n"), 1):
        position -= len(_without_space(line))
        if position < 0:
            return number
    return None


def _without_space(text: str) -> str:
    return "".join(text.split())


def _closest_line(text: str, old: str) -> tuple[int, str] | None:
    """Return number and line of *text* most similar to the first line of *old* not in *text*; None if too unlike."""
    old_lines = [line.strip() for line in old.split("\n") if line.strip()]
    if not old_lines:
        return None
    missing = next((line for line in old_lines if line not in text), old_lines[0])
    lines = [line.rstrip("\r")[:WIDTH] for line in text.split("\n")[:COMPARED]]
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        numbers.setdefault(line.strip(), number)
    # autojunk would ignore the frequent characters of a long line, so that nothing would be similar to it.
    matcher = difflib.SequenceMatcher(None, "", missing[:WIDTH], autojunk=False)

    def similarity(candidate: str, *, is_exact: bool = True) -> float:
        matcher.set_seq1(candidate)
        return matcher.ratio() if is_exact else matcher.quick_ratio()

    likely = heapq.nlargest(CANDIDATES, numbers, key=partial(similarity, is_exact=False))
    best = max(likely, key=similarity)
    return (numbers[best], lines[numbers[best] - 1]) if similarity(best) >= SIMILARITY else None


def _lines_around(text: str, position: int, size: int) -> list[str]:
    """Return, with numbers, the lines of *size* characters at *position*, and AROUND lines around; at most SHOWN."""
    first = text.count("\n", 0, position)
    last = first + text.count("\n", position, max(position, position + size - 1))
    lines = text.removesuffix("\n").split("\n") if text else []
    begin = max(0, first - AROUND)
    end = min(last + AROUND + 1, begin + SHOWN)
    return [f"{number:6}\t{line[:WIDTH]}" for number, line in enumerate(lines[begin:end], begin + 1)]
