"""Standard output as a command writes it: whatever the encoding, and also when nobody reads it any more."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CLOSED = 141
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
        sys.exit(CLOSED)


def discard_output() -> None:
    """Let nothing more be written to standard output: what its buffer holds would fail again when it is closed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
