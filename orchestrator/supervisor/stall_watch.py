"""Detection of stalled agents: busy agents whose counters of activity no longer change."""

from collections.abc import Callable
from pathlib import Path

import trio

from coterie.session_directory import EVENT_LOG, TRANSCRIPT

STALL_SECONDS = 660.0
"""Default seconds without activity that are a stall; over ten minutes, because a command may be silent that long."""
STALL_CHECKS = 10
"""Number of checks of the activity within the time after which an agent is stalled."""

Activity = tuple[object, ...]
"""Counters that change while an agent makes progress. Two snapshots are only compared for equality."""


async def wait_for_stall(read_activity: Callable[[], Activity | None], seconds: float) -> None:
    """Return when *read_activity* has returned equal values for *seconds*; None is no stall and restarts the time."""
    last, since = read_activity(), trio.current_time()
    while True:
        await trio.sleep(seconds / STALL_CHECKS)
        activity = read_activity()
        if activity is None or activity != last:
            last, since = activity, trio.current_time()
        elif trio.current_time() - since >= seconds:
            return


def written_bytes(directory: Path) -> Activity:
    """Return the sizes of the event log and the transcript in the agent's *directory*, as activity counters."""
    return tuple(_size(directory / name) for name in (EVENT_LOG, TRANSCRIPT))


def wakeup_count(pid: int) -> int:
    """Return how often process *pid* has waited and run again, as an activity counter; 0 if the process has ended.

    During a long reply it is the only counter that changes, because nothing is written before the reply is complete.
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
