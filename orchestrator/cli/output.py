"""Output of `coterie` commands: exit codes, removal of control characters, formats, closed standard output, errors."""

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
    """Exit codes of `coterie` commands, which are documented and must not change."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    BUDGET_SPENT = 3
    APPROVAL_REFUSED = 4
    MODEL_UNREACHABLE = 5
    INTERRUPTED = 130
    TERMINATED = 143


class UsageRefused(click.ClickException):
    """Error in the user's input, such as an option or a file: the command prints it on one line and exits with 2."""

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
    """Return *text* without escape sequences, control characters and bidirectional marks; newlines and tabs stay."""
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str, limit: int = 100) -> str:
    """Return *text* on one line, sanitized, with single spaces; cut to *limit* characters with `...` at the end."""
    words = " ".join(sanitize(text).split())
    return words if len(words) <= limit else words[: max(limit - 3, 0)] + "..."


def escape_invisible(text: str) -> str:
    r"""Return *text* with each unprintable character shown as an escape such as `\x1b`; newlines stay."""
    lines = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.split("\n"))
    return "\n".join(lines)


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Return *number* with *noun* in singular or *plural* (default: with `s`), such as `1 file` or `1,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_time(at: float) -> str:
    """Return the time *at*, in seconds since 1970, as local date and time, such as `2026-01-31 09:30:00`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def format_clock(at: float) -> str:
    """Return the time *at*, in seconds since 1970, as local time of day, such as `09:30:00`; `--:--:--` for 0."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if at else "--:--:--"


def format_age(seconds: float) -> str:
    """Return a duration in its largest unit (days, hours, minutes or seconds), rounded down, such as `5 min`."""
    size, unit = next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
    return f"{max(0, int(seconds // size))} {unit}"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def print_json(value: object) -> None:
    """Print *value* as one line of JSON on standard output."""
    click.echo(msgspec.json.encode(value))


def print_result(facts: object, lines: Iterable[str], *, is_json: bool, empty: str = "") -> None:
    """Print the result of a command: *facts* as one line of JSON if *is_json*, else *lines*, which may be styled.

    If *is_json* is false and there are no lines, print the message *empty* on standard error.
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
"""Exit code if the reader of standard output, such as `head`, has exited: 128 + SIGPIPE."""


@contextmanager
def open_output() -> Iterator[None]:
    """Prepare standard output and error for the block, which may print, and flush standard output at its end.

    Characters that the encoding of the stream lacks become question marks. If the reader of standard output, such as
    `head -1`, has exited, the process exits with `CLOSED_OUTPUT_CODE` and prints no message.
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
    """Convert exceptions in the block: types *user* to `UsageRefused`, *machine* and `OSError` to `ClickException`.

    *path* is the file to show for an `OSError` that names no file. A `BrokenPipeError` is not converted.
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
        raise click.ClickException(sanitize(f"cannot use the file {exc.filename or path}: {exc.strerror}")) from exc
