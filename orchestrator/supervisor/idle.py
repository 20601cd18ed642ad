"""Detection of idle teams."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from coterie.mailbox.transports.file.log_reader import needs_turn
from coterie.orchestrator.supervisor.agent_run import AgentRun

RECHECK_SECONDS = 1.0
"""Seconds until the next check without a state change, because mail can be taken without one."""
RECEIVE_CHECKPOINTS = 5
"""Checkpoints of the event loop in which messages in a socket's buffer are received."""

DescendantRuns = Callable[[], Sequence[AgentRun] | None]
"""Returns the runs of the agents below one agent; None while some are about to start."""


@attrs.define(eq=False)
class StateChanges:
    """Notification of agent state changes for waiting tasks of the root."""

    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def notify(self) -> None:
        """Wake all tasks that wait."""
        self._waiting.unpark_all()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._waiting.park()


async def wait_until_idle(below: DescendantRuns, mailboxes: Path, changes: StateChanges) -> None:
    """Return when all descendants *below* are idle, and none of the *mailboxes* has a message that would wake one."""
    while not await _is_idle(below, mailboxes):
        with trio.move_on_after(RECHECK_SECONDS):
            await changes.next()


async def _is_idle(below: DescendantRuns, mailboxes: Path) -> bool:
    counts = _message_counts(below())
    if counts is None:
        return False
    if await trio.to_thread.run_sync(lambda: any(needs_turn(mailboxes / name) for name in counts)):
        return False
    # An agent reports that it is busy before it takes its mail, so the report is in the socket's buffer by now.
    for _ in range(RECEIVE_CHECKPOINTS):
        await trio.lowlevel.checkpoint()
    return _message_counts(below()) == counts


def _message_counts(runs: Sequence[AgentRun] | None) -> Mapping[str, tuple[int, int]] | None:
    """Incarnation and number of messages of each agent; None if one of them is busy."""
    if runs is None or not all(run.is_idle for run in runs):
        return None
    processes = {run.name: run.process for run in runs}
    return {
        name: (process.spec.incarnation.number, process.message_count) if process else (0, 0)
        for name, process in processes.items()
    }
