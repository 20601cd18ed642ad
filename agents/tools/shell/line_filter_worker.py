"""Worker process that filters lines by a regular expression. It imports nothing of ours.

Started as a script with nothing but the standard library. The first line of standard input is the expression as JSON
in ASCII; all behind it is what to filter.
"""

import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator

LIFETIME = 60
"""Seconds after which it ends by itself, should whoever started it be gone."""


def matching(lines: Iterable[bytes], regex: re.Pattern[str]) -> Iterator[bytes]:
    """The lines in which *regex* is found; bytes that are not UTF-8 are replaced while it looks."""
    return (line for line in lines if regex.search(line.decode("utf-8", "replace").rstrip("\r\n")))


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    expression = re.compile(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.buffer.writelines(matching(sys.stdin.buffer, expression))
