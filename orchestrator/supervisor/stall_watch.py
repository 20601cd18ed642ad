"""Detection of stalled agents by their signs of life."""

from collections.abc import Callable
from pathlib import Path

import trio

from coterie.session_directory import EVENT_LOG, TRANSCRIPT

STALL_SECONDS = 660.0
"""Seconds without a sign of life. A command may run for ten minutes and print nothing, so it must be more."""
STALL_CHECKS = 10
"""How often it is looked for signs within that time."""

Activity = tuple[object, ...]
"""Whatever changes while an agent gets on. Only whether it is the same as before matters."""


async def wait_for_stall(signs: Callable[[], Activity | None], patience: float) -> None:
    """Return when *signs* have been the same for *patience* seconds; None is the sign of who rightly waits."""
    last, since = signs(), trio.current_time()
    while True:
        await trio.sleep(patience / STALL_CHECKS)
        found = signs()
        if found is None or found != last:
            last, since = found, trio.current_time()
        elif trio.current_time() - since >= patience:
            return


def written_bytes(directory: Path) -> Activity:
    """How much the agent has written in its *directory*."""
    return tuple(_size(directory / name) for name in (EVENT_LOG, TRANSCRIPT))


def wakeup_count(pid: int) -> int:
    """How often the process had something to do after it had waited; a stopped one never has.

    The only sign of a long reply that the model thinks about, of which nothing is written before it is whole.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended, as its owner finds out
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
