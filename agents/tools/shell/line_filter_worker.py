"""Script of a worker process: copies the lines of standard input that match a regular expression to standard output.

It imports only the standard library. The first line of standard input is the expression as ASCII JSON; the lines to
filter follow.
"""

import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator

LIFETIME = 60
"""Seconds after which a signal kills the script, so that it cannot outlive a parent that has died."""


def matching(lines: Iterable[bytes], regex: re.Pattern[str]) -> Iterator[bytes]:
    """Yield the lines in which *regex* finds a match. Invalid UTF-8 is replaced for the search, not in the result."""
    return (line for line in lines if regex.search(line.decode("utf-8", "replace").rstrip("\r\n")))


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    expression = re.compile(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.buffer.writelines(matching(sys.stdin.buffer, expression))
