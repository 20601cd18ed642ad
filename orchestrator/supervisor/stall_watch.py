"""Detection of stalled agents by their activity."""

from collections.abc import Callable
from pathlib import Path

import trio

from coterie.session_directory import EVENT_LOG, TRANSCRIPT

STALL_SECONDS = 660.0
"""Default seconds without activity; more than ten minutes, because a command may run that long without output."""
STALL_CHECKS = 10
"""Number of checks within that time."""

Activity = tuple[object, ...]
"""Snapshot of counters that change while an agent makes progress; only compared for equality."""


async def wait_for_stall(read_activity: Callable[[], Activity | None], seconds: float) -> None:
    """Return when the activity has not changed for *seconds*; None means that the agent has reason to wait."""
    last, since = read_activity(), trio.current_time()
    while True:
        await trio.sleep(seconds / STALL_CHECKS)
        activity = read_activity()
        if activity is None or activity != last:
            last, since = activity, trio.current_time()
        elif trio.current_time() - since >= seconds:
            return


def written_bytes(directory: Path) -> Activity:
    """Return the sizes of the event log and the transcript in *directory*."""
    return tuple(_size(directory / name) for name in (EVENT_LOG, TRANSCRIPT))


def wakeup_count(pid: int) -> int:
    """Return the number of voluntary context switches of a process; it does not grow while the process is stopped.

    It is the only activity during a long reply, because nothing is written before the reply is complete.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended; its owner notices
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
