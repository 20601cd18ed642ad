"""Ripgrep as a fast filter: finds files without a match, so that the slower search in Python can skip these files.

Python searches decoded text, and ripgrep defines classes, case and line ends differently. So each part of an expression
becomes a byte pattern that matches the same or more: a match too many costs time, one too few would lose a result.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import trio

from coterie.agents.tools.search.grep_worker import SkippedFile, open_file, read_beginning

OLDEST = (14, 1)
"""Oldest version of ripgrep that is used: it has all OPTIONS, and no known bug that misses matches."""
OPTIONS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-mmap", "--regex-size-limit=10M"),
    *("--text", "--encoding=none", "--no-unicode", "--files-with-matches", "--null"),
)
"""Options with which ripgrep searches all given files as raw bytes, and prints the names of files with a match."""
BATCH = 500_000
"""Bytes of paths after which a further run of ripgrep is started; one command line may have about 2,000,000."""

_trusted: dict[str, bool] = {}

ASCII = frozenset(map(chr, range(128)))
BEYOND = r"[\x80-\xff]+"
"""Byte pattern that matches a non-ASCII character, or invalid UTF-8, which Python decodes to U+FFFD."""
ANY = rf"(?:[\x00-\x09\x0b-\x7f]|{BEYOND})"
ANYWHERE = "(?:)"
"""Pattern that matches everywhere, in place of `^` and `$`: ripgrep sees BOM and CR in a line, Python does not."""
SAME_LETTERS = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""ASCII letter -> non-ASCII letters that Python treats as equal to the letter if case is ignored."""
REPETITION_DIGITS = 3

_DIGITS = frozenset(filter(str.isdigit, ASCII))
_WORD = frozenset(filter(str.isalnum, ASCII)) | {"_"}
_SPACE = frozenset(filter(str.isspace, ASCII))
_CLASSES = {"d": _DIGITS, "D": ASCII - _DIGITS, "w": _WORD, "W": ASCII - _WORD, "s": _SPACE, "S": ASCII - _SPACE}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_IGNORES_CASE = "(?i)"
_TOKEN = re.compile(
    r"""
      (?P<group>     \( (?: \?: | \?P<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) ) )
    | (?P<structure> [|)] )
    | (?P<repeat>    (?: (?P<sign> [*+?] ) | \{ (?P<least> [0-9]* ) (?P<most> ,? [0-9]* ) \} (?<!\{\}) ) [?+]? )
    | (?P<set>       \[ (?P<not> \^?+ ) (?P<items> (?: \] | \\. | [^\]\\] ) (?: \\. | [^\]\\] )* ) \] )
    | (?P<assertion> [$^] | \\[AZbB] )
    | (?P<letter>    \\. | [^\\(\[] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"(?P<first>\\.|.)(?:-(?P<last>\\.|.))?", re.DOTALL)
_WARNED_OF = re.compile(r"^\[|--|&&|~~|\|\|")
"""Parts of a set `[...]` for which Python warns that their meaning may change; such a set is not translated."""


@functools.cache
def installed_ripgrep() -> str | None:
    """Return the absolute path of ripgrep from PATH, searched once per process; None if it is not installed."""
    program = shutil.which("rg")
    # With a relative entry of PATH this could be a program in the searched directory.
    return program if program is not None and Path(program).is_absolute() else None


async def files_without(program: str, pattern: str, files: Sequence[str]) -> frozenset[str]:
    """Return the text files among *files*, absolute paths, in which ripgrep finds no line that matches *pattern*.

    Empty if *program* is not ripgrep, is too old, or fails. Cancellation kills it; a thread may go on checking files.
    """
    if not await _is_trusted(program):
        return frozenset()
    texts = await trio.to_thread.run_sync(list, filter(_is_text_sync, files), abandon_on_cancel=True)
    without = set(texts)
    for batch in _batches(texts):
        output = await _run(program, *OPTIONS, f"--regexp={pattern}", "--", *batch)
        if output is None:
            return frozenset()
        found = {os.fsdecode(path) for path in output.split(b"\0") if path}
        if not found.issubset(batch):
            return frozenset()
        without -= found
    return frozenset(without)


async def _is_trusted(program: str) -> bool:
    if program not in _trusted:
        output = await _run(program, "--version")
        version = re.match(rb"ripgrep (\d+)\.(\d+)", output or b"")
        _trusted[program] = version is not None and (int(version[1]), int(version[2])) >= OLDEST
    return _trusted[program]


async def _run(program: str, *arguments: str) -> bytes | None:
    """Run *program* with *arguments* and return its output; None if the program fails or prints to stderr."""
    try:
        ended = await trio.run_process(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False
        )
    except OSError:
        return None
    # The exit code is 1 if all files were read and none has a match.
    return ended.stdout if ended.returncode in (0, 1) and not ended.stderr else None


def _is_text_sync(path: str) -> bool:
    """Return True if *path* is a non-empty text file, and False also if it is too large or unreadable. Blocks."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        read_beginning(descriptor)
        # Files in /proc and /sys have the size 0, and reading one may never end.
        return os.fstat(descriptor).st_size > 0
    except (OSError, SkippedFile):
        return False
    finally:
        os.close(descriptor)


def _batches(files: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in files:
        batch.append(path)
        size += len(os.fsencode(path))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Untranslatable(Exception):
    """Raised for a part of a regular expression that cannot be translated for ripgrep without missing matches."""


def byte_pattern(expression: str, *, ignore_case: bool) -> str | None:
    """Translate the Python regular expression *expression* to a ripgrep pattern that matches the same lines or more.

    Returns None if a part cannot be translated. An invalid *expression* may give a pattern or None.
    """
    ignore_case = ignore_case or expression.startswith(_IGNORES_CASE)
    position = len(_IGNORES_CASE) if expression.startswith(_IGNORES_CASE) else 0
    parts = []
    try:
        while position < len(expression):
            token = _TOKEN.match(expression, position)
            if token is None:
                return None
            parts.append(_part(token, ignore_case=ignore_case))
            position = token.end()
    except _Untranslatable:
        return None
    return "".join(parts)


def _part(token: re.Match[str], *, ignore_case: bool) -> str:
    match token.lastgroup:
        case "group":
            return "(?:"
        case "repeat":
            return token["sign"] or _repetition(token["least"], token["most"])
        case "set":
            return _set(token["items"], is_negated=bool(token["not"]), ignore_case=ignore_case)
        case "assertion":
            return ANYWHERE
        case "letter":
            return _single(token[0], ignore_case=ignore_case)
        case _:
            return token[0]


def _repetition(least: str, most: str) -> str:
    """Return a ripgrep repetition such as `{2,5}`; always greedy, because lazy and possessive ones match no more."""
    if max(len(least), len(most.removeprefix(","))) > REPETITION_DIGITS:
        raise _Untranslatable
    return f"{{{least or 0}{most}}}"


def _single(text: str, *, ignore_case: bool) -> str:
    """Return the byte pattern for *text*, a part of an expression that matches one character: letter, escape or dot."""
    if text == ".":
        return ANY
    if _is_class(text):
        return _one_of(_CLASSES[text[1]], and_beyond=True)
    letter = _literal(text)
    if letter == "\n":
        raise _Untranslatable
    if letter not in ASCII and (ignore_case or letter == "\N{REPLACEMENT CHARACTER}"):
        # Unicode case rules are not reproduced here, and a replacement character can stand for any invalid bytes.
        return ANY
    same = {letter.lower(), letter.upper(), *SAME_LETTERS.get(letter.lower(), "")} if ignore_case else {letter}
    return f"(?:{'|'.join(map(_bytes, sorted(same)))})"


def _is_class(text: str) -> bool:
    return text[0] == "\\" and text[1] in _CLASSES


def _literal(text: str) -> str:
    """Return the character that *text*, a character or a backslash escape, matches. Raises `_Untranslatable`."""
    if text[0] != "\\":
        return text
    if text[1] in _CONTROLS:
        return _CONTROLS[text[1]]
    if text[1] in _WORD - {"_"}:
        raise _Untranslatable
    return text[1]


def _set(items: str, *, is_negated: bool, ignore_case: bool) -> str:
    if _WARNED_OF.search(items):
        raise _Untranslatable
    listed: set[str] = set()
    has_beyond = is_negated or ignore_case
    for item in _ITEM.finditer(items):
        first, last = item["first"], item["last"]
        if last is None and _is_class(first):
            listed |= _CLASSES[first[1]]
            has_beyond = True
        else:
            lowest, highest = _literal(first), _literal(last or first)
            listed |= {letter for letter in ASCII if lowest <= letter <= highest}
            has_beyond = has_beyond or highest not in ASCII
    if is_negated:
        # If case is ignored, Python excludes further letters, but excluding too few is safe.
        return _one_of(ASCII - listed, and_beyond=True)
    if ignore_case:
        listed |= {letter.swapcase() for letter in listed} | {*"iksIKS"}
    return _one_of(listed, and_beyond=has_beyond)


def _one_of(letters: Iterable[str], *, and_beyond: bool) -> str:
    """Return a byte pattern for one character: one of the ASCII *letters* or, with *and_beyond*, any non-ASCII one."""
    inside = "".join(map(_bytes, sorted({*letters} - {"\n"})))
    if not inside and not and_beyond:
        raise _Untranslatable
    return "(?:" + "|".join([f"[{inside}]"] * bool(inside) + [BEYOND] * and_beyond) + ")"


def _bytes(letter: str) -> str:
    # An unpaired surrogate never occurs in decoded text, so any encoding of it is correct.
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
