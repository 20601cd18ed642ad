"""Work that cannot be interrupted is done by a script in a process of its own, which can be killed."""

import sys
from pathlib import Path

import trio

from coterie.agents.errors import ToolFailed


async def run_worker(script: Path, order: bytes, *, work: str = "The search") -> bytes:
    """Give *order* to *script*, which has nothing but the standard library, and return its answer.

    When cancelled, the process is killed. Raises `ToolFailed`, which says what *work* it was, if it does not come to an
    answer.
    """
    # Isolated, or the modules beside the script, one of which is called glob, would be found first.
    ended = await trio.run_process(
        [sys.executable, "-I", "-S", "-W", "ignore", str(script)],
        stdin=order,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if ended.returncode:
        last_words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ToolFailed(f"{work} ended early, with status {ended.returncode}: {last_words or 'it was killed'}")
    return ended.stdout
