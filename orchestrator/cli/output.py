"""Output of commands: exit codes, sanitized text, and standard output that may be closed."""

import enum
import io
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec


class ExitCode(enum.IntEnum):
    """Exit codes of commands; docs and scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    BUDGET_SPENT = 3
    APPROVAL_REFUSED = 4
    MODEL_UNREACHABLE = 5
    INTERRUPTED = 130
    TERMINATED = 143


class UsageRefused(click.ClickException):
    """Unusable input from the user: printed as one line on standard error, exit code 2."""

    exit_code = ExitCode.USAGE


_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls, which reorder text on screen
    "\U000e0000-\U000e007f]"  # invisible tag characters
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def sanitize(text: str) -> str:
    """*text* without escape sequences, control characters and bidirectional marks; newlines and tabs stay."""
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str, limit: int = 100) -> str:
    """*text* collapsed to one line of at most *limit* characters."""
    words = " ".join(sanitize(text).split())
    return words if len(words) <= limit else words[: max(limit - 3, 0)] + "..."


def escape_invisible(text: str) -> str:
    """*text* with every unprintable character written as an escape, so that nothing is hidden; newlines stay."""
    lines = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.split("\n"))
    return "\n".join(lines)


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Count with its noun, as in `1,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_time(at: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def format_clock(at: float) -> str:
    """Local time of day; dashes for 0, an unknown time."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if at else "--:--:--"


def format_age(seconds: float) -> str:
    """A duration in its largest unit, as in `5 min`."""
    size, unit = next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
    return f"{max(0, int(seconds // size))} {unit}"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def print_json(value: object) -> None:
    """Print one line of JSON."""
    click.echo(msgspec.json.encode(value))


def print_result(facts: object, lines: Iterable[str], *, is_json: bool, empty: str = "") -> None:
    """Print *facts* as one line of JSON if *is_json*, else the *lines*, which may be styled.

    Without any line, *empty* is printed on standard error.
    """
    if is_json:
        print_json(facts)
        return
    is_empty = True
    for line in lines:
        is_empty = False
        click.echo(line)
    if is_empty and empty:
        click.echo(sanitize(empty), err=True)


CLOSED_OUTPUT_CODE = 141
"""Exit code when the reader of standard output has gone: the code of a program that SIGPIPE has ended."""


@contextmanager
def open_output() -> Iterator[None]:
    """Write to standard output and error within this block.

    Characters that the encoding lacks become question marks. If the reader has gone, as `head -1` does, the process
    exits with `CLOSED_OUTPUT_CODE` and prints no message.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Redirected to /dev/null, so that flushing at exit does not raise BrokenPipeError again.
        with open(os.devnull, "wb") as null:  # noqa: PTH123 - for its number
            os.dup2(null.fileno(), sys.stdout.fileno())
        sys.exit(CLOSED_OUTPUT_CODE)


@contextmanager
def translate_errors(
    *, user: tuple[type[Exception], ...], machine: tuple[type[Exception], ...], path: Path
) -> Iterator[None]:
    """Translate errors within the block to `ClickException`; *path* names the file of an `OSError` without one.

    Errors of the types *user* are those that the user can correct, and become `UsageRefused`.
    """
    try:
        yield
    except user as exc:
        raise UsageRefused(sanitize(str(exc))) from exc
    except machine as exc:
        raise click.ClickException(sanitize(str(exc))) from exc
    except BrokenPipeError:
        raise  # a closed standard output, which `open_output` handles
    except OSError as exc:
        raise click.ClickException(sanitize(f"{exc.filename or path}: {exc.strerror}")) from exc
