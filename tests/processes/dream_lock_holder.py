"""Process that tries to dream: `python -m tests.processes.dream_lock_holder DIRECTORY`, started by a line on stdin.

It prints whether it has the lock, and holds the lock until its input ends.
"""

import sys
from pathlib import Path

from coterie.clock import Clock
from coterie.memory.dreaming.dream_lock import acquire_dream_lock
from coterie.memory.errors import DreamRefused


def hold(directory: Path) -> None:
    """Run the module."""
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    try:
        acquire_dream_lock(directory, Clock())
    except DreamRefused:
        print("refused", flush=True)  # noqa: T201 - the test reads it
    else:
        print("held", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()


if __name__ == "__main__":
    hold(Path(sys.argv[1]))
