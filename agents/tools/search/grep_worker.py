"""Worker process of the Grep tool, which searches files for a regular expression.

Runs as a script and imports only the standard library, so that it starts in a few milliseconds. Reads a `GrepRequest`
from standard input and writes a `GrepResult` to standard output, both as ASCII JSON, which can represent any file name.
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
from typing import Literal, NamedTuple

Mode = Literal["files_with_matches", "content", "count"]

LIFETIME = 60
"""Seconds after which SIGALRM kills the worker process, in case the agent process that started it has died."""
SNIFFED = 8 * 1024
"""Number of bytes at the beginning of a file in which a NUL byte shows that the file is binary."""
LARGEST = 256 * 1024 * 1024
LINE_LIMIT = 500
"""Maximum characters shown of one line of a searched file."""


class GrepRequest(NamedTuple):
    """Request of the Grep tool to the worker process: a regular expression, options, and the files to search."""

    pattern: str
    ignore_case: bool
    mode: Mode
    context: int
    limit: int
    files: list[tuple[str, str]]
    """Path and display name (as shown to the model) of each file, in the order of the search."""
    excluded: list[int] = []  # noqa: RUF012 - default of a NamedTuple that is never mutated
    """Indexes in `files` of text files that are known to have no match; they count as searched, but are not read."""
    is_continued: bool = False
    """True if an earlier request of this search had matches, so that the separator `--` precedes the next match."""


class GrepResult(NamedTuple):
    """Answer of the worker process: result lines, and the numbers of files searched and skipped."""

    lines: list[str] = []  # noqa: RUF012 - default of a NamedTuple that is never mutated
    is_cut: bool = False
    """True if there are more result lines than the limit of the request, so that `lines` is incomplete."""
    searched: int = 0
    binary: int = 0
    large: int = 0
    unreadable: int = 0
    error: str | None = None
    """Reason why the regular expression of the request is invalid, so that nothing was searched; else None."""

    def joined(self, later: "GrepResult") -> "GrepResult":
        """Return this result merged with *later*, the result of the files that follow: lines and counts are added."""
        return later._replace(
            lines=self.lines + later.lines,
            searched=self.searched + later.searched,
            binary=self.binary + later.binary,
            large=self.large + later.large,
            unreadable=self.unreadable + later.unreadable,
        )


class SkippedFile(Exception):
    """Raised for a file that is not searched; the argument is the reason: "binary", "large" or "unreadable"."""


def search(request: GrepRequest) -> GrepResult:
    """Search the files in order until the limit of result lines. An invalid pattern sets `error` instead of raising."""
    try:
        regex = re.compile(request.pattern, re.IGNORECASE if request.ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as exc:
        return GrepResult(error=str(exc))
    counts: Counter[str] = Counter()
    lines = list(itertools.islice(_all_lines(request, regex, counts), request.limit + 1))
    return GrepResult(
        lines=lines[: request.limit],
        is_cut=len(lines) > request.limit,
        searched=counts["searched"],
        binary=counts["binary"],
        large=counts["large"],
        unreadable=counts["unreadable"],
    )


def _all_lines(request: GrepRequest, regex: re.Pattern[str], counts: Counter[str]) -> Iterator[str]:
    is_first = not request.is_continued
    excluded = frozenset(request.excluded)
    for number, (path, name) in enumerate(request.files):
        if number in excluded:
            counts["searched"] += 1
            continue
        try:
            for index, line in enumerate(_file_lines(request, regex, path, name)):
                if request.mode == "content" and request.context and index == 0 and not is_first:
                    yield "--"
                is_first = False
                yield line
            counts["searched"] += 1
        except SkippedFile as exc:
            counts[exc.args[0]] += 1
        except OSError:
            counts["unreadable"] += 1


def _file_lines(request: GrepRequest, regex: re.Pattern[str], path: str, name: str) -> Iterator[str]:
    with open(path, "rb", opener=open_file) as file:
        has_mark = read_beginning(file.fileno()).startswith(codecs.BOM_UTF8)
        file.seek(len(codecs.BOM_UTF8) if has_mark else 0)
        text = (line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in file)
        if request.mode == "content":
            yield from _matches_in_context(text, regex, name, request.context)
        elif request.mode == "count":
            if count := sum(1 for line in text if regex.search(line)):
                yield f"{name}:{count}"
        elif any(regex.search(line) for line in text):
            yield name


def open_file(path: str, flags: int) -> int:
    """Opener for `open`: does not follow a link or wait for a pipe, one of which may have replaced the file *path*."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def read_beginning(descriptor: int) -> bytes:
    """Return the first SNIFFED bytes of an open file. Raises `SkippedFile` if it is binary, large or not regular."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise SkippedFile("unreadable")
    if status.st_size > LARGEST:
        raise SkippedFile("large")
    beginning = os.pread(descriptor, SNIFFED, 0)
    if b"\0" in beginning:
        raise SkippedFile("binary")
    return beginning


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
