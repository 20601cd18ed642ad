"""Include references in instruction files such as `CLAUDE.md`: `@path`, outside code, includes another file."""

import itertools
import os
import re
from pathlib import Path

import attrs

from coterie.memory.markdown import lines_with_code

_BACKTICKS = re.compile(r"`+")
_REFERENCE = re.compile(r"(?<!\S)@(?P<path>(?:\\ |[^\s`])+)")
_SENTENCE_MARKS = ".,;:!?)]}>\"'*_"


@attrs.frozen
class IncludeReference:
    """A word `@path` in an instruction file; if there is a file at this path, its text is included."""

    line: int
    path: str

    def target(self, directory: Path) -> Path | None:
        """Return the resolved path of the file `path`, relative to *directory* or in `~/`; None if it is missing."""
        for name in dict.fromkeys((self.path, self.path.rstrip(_SENTENCE_MARKS))):
            try:
                path = Path.home() / name[2:] if name.startswith("~/") else directory / name
                if path.is_file():
                    return Path(os.path.realpath(path))
            except (OSError, RuntimeError):  # name too long, directory not readable, or user without a home directory
                continue
        return None


def find_includes(text: str) -> list[IncludeReference]:
    r"""Return every word `@path` in *text* with its line, except in fenced code blocks and code spans.

    `\ ` is a space in a path. A match may also be a decorator or package name, so check that the file exists.
    """
    prose: list[str] = []
    # A code span may span lines, but not the blank line that ends a paragraph.
    without_code = ("" if is_code else line for line, is_code in lines_with_code(text.split("\n")))
    for _, lines in itertools.groupby(without_code, key=lambda line: bool(line.strip())):
        prose += _without_spans("\n".join(lines)).split("\n")
    return [
        IncludeReference(number, found["path"].replace("\\ ", " "))
        for number, line in enumerate(prose, 1)
        for found in _REFERENCE.finditer(line)
    ]


def _without_spans(paragraph: str) -> str:
    """Return *paragraph* with each character of its code spans replaced by a backtick, so that positions stay equal."""
    runs = list(_BACKTICKS.finditer(paragraph))
    closers: dict[int, int] = {}
    latest: dict[str, int] = {}
    for index in reversed(range(len(runs))):
        if runs[index][0] in latest:
            closers[index] = latest[runs[index][0]]
        latest[runs[index][0]] = index
    pieces: list[str] = []
    index = end = 0
    while index < len(runs):
        if index in closers:
            pieces.append(paragraph[end : runs[index].start()])
            start, end = runs[index].start(), runs[closers[index]].end()
            pieces.append(re.sub(r"[^\n]", "`", paragraph[start:end]))
        index = closers.get(index, index) + 1
    return "".join((*pieces, paragraph[end:]))
