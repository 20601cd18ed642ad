"""The Edit tool: replaces a text that occurs exactly once."""

import difflib
import heapq
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.write import AppliedWrite
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.workspace.file_change import missing_file_hint
from coterie.agents.tools.workspace.read_tracking import LARGEST

AROUND = 3
"""Lines shown before a change and behind it."""
SHOWN = 20
"""Lines shown at most."""
WIDTH = 200
"""Characters of one line that are shown, or compared."""
PLACES = 10
"""Matches whose lines are named."""
COMPARED = 5_000
"""Lines among which the nearest is sought."""
LIKELY = 20
"""Lines that are compared letter by letter, a millisecond each; all others by which letters they have."""
SIMILARITY = 0.5

_BARE_LINE_END = re.compile(r"(?<!\r)\n")


@attrs.frozen(kw_only=True)
class EditInput:
    """What to replace, and by what."""

    file_path: str = attrs.field(metadata=described("The file, absolute or relative to the project directory."))
    old_string: str = attrs.field(metadata=described("The text to replace, exactly as it stands in the file."))
    new_string: str = attrs.field(metadata=described("The text to put in its place; empty to delete it."))
    replace_all: bool = attrs.field(
        default=False, metadata=described("Replace every occurrence, instead of the only one.")
    )


class Edit:
    """Replaces a text in a file."""

    name: ClassVar = "Edit"
    description: ClassVar = tool_description("edit")
    input_type: ClassVar = EditInput
    access: ClassVar[Access] = "edit"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, arguments: EditInput, workspace: Workspace) -> list[Path]:
        """The file."""
        return [workspace.target(arguments.file_path).path]

    async def run(self, arguments: EditInput, workspace: Workspace) -> ToolResult:
        """Change the file whole or not at all; once begun it is finished, also when cancelled."""
        return (await trio.to_thread.run_sync(_edit_sync, arguments, workspace)).finish(workspace)


def _edit_sync(wanted: EditInput, workspace: Workspace) -> AppliedWrite:
    if not wanted.old_string:
        raise ToolFailed("old_string is empty. Give the text to replace; to fill a file, use Write.")
    target = workspace.target(wanted.file_path)
    existing = target.read(workspace.seen)
    if existing is None:
        raise ToolFailed(f"{wanted.file_path} does not exist{missing_file_hint(target.path)}")
    text = existing.text
    old, new = _with_line_ends_of(text, wanted.old_string, wanted.new_string)
    if old == new:
        raise ToolFailed("old_string and new_string are the same: nothing would change.")
    _check_matches(wanted, text, old)
    count = text.count(old)
    if len(text) + count * (len(new) - len(old)) > LARGEST:
        raise ToolFailed(
            f"{wanted.file_path} would have more than the {LARGEST // 1024**2} MB that can be changed here."
        )
    edited = text.replace(old, new)
    put = target.write(edited, existing, workspace.seen)
    report = f"edited {wanted.file_path}: {count:,} replacement{'s' * (count != 1)}"
    lines = _lines_around(edited, text.index(old), len(new))
    report = "\n".join([report, *lines])
    return AppliedWrite(path=target.path, content=put.content, report=report, change=put.change)


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    r"""*old* and *new* with \r\n for \n if that is what ends the lines of *text*.

    Not if *old* has a \r, for then the model means what it says, nor if *text* has both ends and *old* fits.
    """
    is_mixed = text.count("\r\n") != text.count("\n")
    if "\r\n" not in text or "\r" in old or (is_mixed and old in text):
        return old, new
    return _BARE_LINE_END.sub("\r\n", old), _BARE_LINE_END.sub("\r\n", new)


def _check_matches(wanted: EditInput, text: str, old: str) -> None:
    places = list(islice(_match_positions(text, old), PLACES + 1))
    if not places:
        raise ToolFailed(f"old_string does not stand in {wanted.file_path}. {_hint(text, old)}")
    if len(places) == 1 or wanted.replace_all:
        return
    lines = ", ".join(f"{text.count(chr(10), 0, place) + 1:,}" for place in places[:PLACES])
    raise ToolFailed(
        f"old_string stands {max(len(places), text.count(old)):,} times in {wanted.file_path}, on lines {lines}"
        f"{' and more' * (len(places) > PLACES)}. Give more of the text around the one you mean, or set replace_all."
    )


def _match_positions(text: str, old: str) -> Iterator[int]:
    """Where *old* begins; also where it overlaps with itself, for then it is not clear which one is meant."""
    place = text.find(old)
    while place >= 0:
        yield place
        place = text.find(old, place + 1)


def _hint(text: str, wanted: str) -> str:
    """What to do about *wanted*, which is not empty, not being in *text*."""
    if number := _line_but_for_space(text, wanted):
        return f"It differs only in white space from what begins on line {number:,}; copy that exactly."
    if found := _nearest_line(text, wanted):
        number, line = found
        return f"The nearest line is {number:,}:\n{number:6}\t{line}"
    return "Nothing in the file resembles it; read the file again."


def _line_but_for_space(text: str, wanted: str) -> int | None:
    sought = _squeezed(wanted)
    place = _squeezed(text).find(sought)
    if not sought or place < 0:
        return None
    for number, line in enumerate(text.split("\n"), 1):
        place -= len(_squeezed(line))
        if place < 0:
            return number
    return None


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _nearest_line(text: str, wanted: str) -> tuple[int, str] | None:
    """The line most like the first one of *wanted* that is not in *text*, and its number."""
    sought = [line.strip() for line in wanted.split("\n") if line.strip()]
    if not sought:
        return None
    stray = next((line for line in sought if line not in text), sought[0])
    lines = [line.rstrip("\r")[:WIDTH] for line in text.split("\n")[:COMPARED]]
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        numbers.setdefault(line.strip(), number)
    near = _nearest(stray[:WIDTH], numbers)
    return None if near is None else (numbers[near], lines[numbers[near] - 1])


def _nearest(sought: str, lines: Iterable[str]) -> str | None:
    # Without autojunk=False the letters of a long line count as noise, and nothing resembles it.
    matcher = difflib.SequenceMatcher(None, "", sought, autojunk=False)

    def likeness(line: str, *, is_exact: bool = True) -> float:
        matcher.set_seq1(line)
        return matcher.ratio() if is_exact else matcher.quick_ratio()

    likely = heapq.nlargest(LIKELY, lines, key=partial(likeness, is_exact=False))
    near = max(likely, key=likeness)
    return near if likeness(near) >= SIMILARITY else None


def _lines_around(text: str, place: int, size: int) -> list[str]:
    """The lines of the *size* characters at *place* and a few around them, numbered as Read does."""
    first = text.count("\n", 0, place)
    last = first + text.count("\n", place, max(place, place + size - 1))
    lines = text.removesuffix("\n").split("\n") if text else []
    begin = max(0, first - AROUND)
    end = min(last + AROUND + 1, begin + SHOWN)
    return [f"{number:6}\t{line[:WIDTH]}" for number, line in enumerate(lines[begin:end], begin + 1)]
