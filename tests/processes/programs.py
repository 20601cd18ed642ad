"""Programs that a test starts, and that end with its block."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def running(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program whose output is read by the test; it is killed at the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of standard output."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@contextmanager
def open_server(*options: str) -> Iterator[str]:
    """Run `coterie serve`, and yield its URL."""
    command = (sys.executable, "-P", "-m", "coterie", "serve", "--port", "0", "--json")
    with running(*command, *options) as server:
        yield json.loads(read_line(server))["url"]
