"""Worker process that searches files for a regular expression. It imports nothing of ours.

Started as a script with nothing but the standard library, to be ready in a few milliseconds. It reads a `GrepRequest`
from standard input and writes a `GrepResult` to standard output, both as JSON in ASCII, which can carry any file name.
"""

import codecs
import itertools
import json
import os
import re
import signal
import stat
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Literal, NamedTuple

Mode = Literal["files_with_matches", "content", "count"]

LIFETIME = 60
"""Seconds after which it ends by itself, should whoever started it be gone."""
SNIFFED = 8 * 1024
"""Bytes at the beginning that tell text from binary."""
LARGEST = 256 * 1024 * 1024
LINE_LIMIT = 500
"""Characters of one line that are shown."""


class GrepRequest(NamedTuple):
    """What to search for, and where."""

    pattern: str
    ignore_case: bool
    mode: Mode
    context: int
    limit: int
    files: list[tuple[str, str]]
    """The path of each file, and what to call it."""
    hopeless: list[int] = []  # noqa: RUF012 - a default of a tuple, and nobody changes it
    """Which of them are text without a match, by their places."""
    is_continued: bool = False
    """Whether earlier files have given lines."""


class GrepResult(NamedTuple):
    """What the search gave."""

    lines: list[str] = []  # noqa: RUF012 - a default of a tuple, and nobody changes it
    is_cut: bool = False
    """Whether there are more lines than the order's limit."""
    searched: int = 0
    binary: int = 0
    large: int = 0
    unreadable: int = 0
    error: str | None = None
    """Why the pattern cannot be used."""

    def joined(self, later: "GrepResult") -> "GrepResult":
        """What was found in these files and in *later* ones, in one."""
        return GrepResult(
            lines=self.lines + later.lines,
            is_cut=later.is_cut,
            searched=self.searched + later.searched,
            binary=self.binary + later.binary,
            large=self.large + later.large,
            unreadable=self.unreadable + later.unreadable,
        )


class SkippedFile(Exception):
    """A file is passed over; the only argument is the field of `GrepResult` that counts it."""


def search(order: GrepRequest) -> GrepResult:
    """Search the files in their order, as far as the limit."""
    try:
        regex = re.compile(order.pattern, re.IGNORECASE if order.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as exc:
        return GrepResult(error=str(exc))
    counts: Counter[str] = Counter()
    lines = list(itertools.islice(_all_lines(order, regex, counts), order.limit + 1))
    return GrepResult(
        lines=lines[: order.limit],
        is_cut=len(lines) > order.limit,
        searched=counts["searched"],
        binary=counts["binary"],
        large=counts["large"],
        unreadable=counts["unreadable"],
    )


def _all_lines(order: GrepRequest, regex: re.Pattern[str], counts: Counter[str]) -> Iterator[str]:
    is_first = not order.is_continued
    hopeless = frozenset(order.hopeless)
    for place, (path, name) in enumerate(order.files):
        if place in hopeless:
            counts["searched"] += 1
            continue
        try:
            for index, line in enumerate(_file_lines(order, regex, path, name)):
                if order.mode == "content" and order.context and index == 0 and not is_first:
                    yield "--"
                is_first = False
                yield line
            counts["searched"] += 1
        except SkippedFile as exc:
            counts[exc.args[0]] += 1
        except OSError:
            counts["unreadable"] += 1


def _file_lines(order: GrepRequest, regex: re.Pattern[str], path: str, name: str) -> Iterator[str]:
    with open(path, "rb", opener=open_file) as file:
        text = _text(file)
        if order.mode == "content":
            yield from _matches_in_context(text, regex, name, order.context)
        elif order.mode == "count":
            if count := sum(1 for line in text if regex.search(line)):
                yield f"{name}:{count}"
        elif any(regex.search(line) for line in text):
            yield name


def open_file(path: str, flags: int) -> int:
    """Follows no link and waits for no pipe, though the file may have been replaced since it was listed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_beginning(descriptor: int) -> bytes:
    """The first bytes of a file that is to be searched. Raises `SkippedFile` for one that is not, or `OSError`."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SkippedFile("unreadable")
    if status.st_size > LARGEST:
        raise SkippedFile("large")
    beginning = os.pread(descriptor, SNIFFED, 0)
    if b"\0" in beginning:
        raise SkippedFile("binary")
    return beginning


def _text(file: BinaryIO) -> Iterator[str]:
    has_mark = read_beginning(file.fileno()).startswith(codecs.BOM_UTF8)
    file.seek(len(codecs.BOM_UTF8) if has_mark else 0)
    return (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in file)


def _matches_in_context(lines: Iterable[str], regex: re.Pattern[str], name: str, context: int) -> Iterator[str]:
    before: deque[str] = deque(maxlen=context)
    following = latest = 0
    for number, line in enumerate(lines, 1):
        if regex.search(line):
            first = number - len(before)
            if context and latest and first > latest + 1:
                yield "--"
            yield from (f"{name}-{first + index}-{_cut(earlier)}" for index, earlier in enumerate(before))
            before.clear()
            yield f"{name}:{number}:{_cut(line)}"
            following, latest = context, number
        elif following:
            yield f"{name}-{number}-{_cut(line)}"
            following, latest = following - 1, number
        else:
            before.append(line)


def _cut(line: str) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    return f"{line[:LINE_LIMIT]} [line cut after {LINE_LIMIT} of {len(line):,} characters]"


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    sys.stdout.write(json.dumps(search(GrepRequest(**json.load(sys.stdin)))._asdict()))
