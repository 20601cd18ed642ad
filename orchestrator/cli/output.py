"""Output of commands: exit codes, sanitized text, and standard output that may be closed."""

import enum
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


class ExitCode(enum.IntEnum):
    """What a shell learns from how a command ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    BUDGET_SPENT = 3
    APPROVAL_REFUSED = 4
    MODEL_UNREACHABLE = 5
    INTERRUPTED = 130
    TERMINATED = 143


class UsageRefused(click.ClickException):
    """What the user gave cannot be used: one line on standard error, and the exit code for it."""

    exit_code = ExitCode.USAGE


_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements, modes
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links, the clipboard
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_LINE_ENDS = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these reorder what is seen
    "\U000e0000-\U000e007f]"  # and these hide
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def sanitize(text: str) -> str:
    """*text* without escape sequences, control characters and marks that reorder; lines and tabs stay."""
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str, limit: int) -> str:
    """The beginning of *text*, in at most *limit* characters and on one line."""
    words = " ".join(sanitize(text).split())
    return words if len(words) <= limit else words[: max(limit - 3, 0)] + "..."


def escape_invisible(text: str) -> str:
    """*text* with everything that cannot be seen written out, so that nothing hides in it; lines stay lines."""
    lines = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in text.split("\n"))
    return "\n".join(lines)


CLOSED_OUTPUT_CODE = 141
"""The exit code when standard output was closed early: what a shell gives a program that SIGPIPE has ended."""


@contextmanager
def open_output() -> Iterator[None]:
    """Write to standard output and error within this block.

    Characters that their encoding lacks become question marks. When whoever read the output has gone, as `head -1`
    does, the process exits with `CLOSED` and says nothing.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        sys.exit(CLOSED_OUTPUT_CODE)


def discard_output() -> None:
    """Let nothing more be written to standard output: what its buffer holds would fail again when it is closed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
