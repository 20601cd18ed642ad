"""Worker process that filters lines by a regular expression.

Runs as a script and imports only the standard library. The first line of standard input is the expression as ASCII
JSON; the rest is the text to filter.
"""

import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator

LIFETIME = 60
"""Seconds after which the script ends, in case its parent has died."""


def matching(lines: Iterable[bytes], regex: re.Pattern[str]) -> Iterator[bytes]:
    """Return the lines that *regex* matches, decoded as UTF-8 with replacement for the search only."""
    return (line for line in lines if regex.search(line.decode("utf-8", "replace").rstrip("\r\n")))


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    expression = re.compile(json.loads(sys.stdin.buffer.readline()))
    sys.stdout.buffer.writelines(matching(sys.stdin.buffer, expression))
