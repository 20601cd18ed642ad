"""What an agent was at work on is open for others once it has ended, however it did."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from coterie.agents.events import Event, LayerFailed
from coterie.mailbox.tasks import Owner, TaskList
from coterie.mailbox.tasks.errors import TaskError

RELEASING = 15.0
"""Seconds that giving tasks back may take; a little more than the lock of the list is waited for."""


@asynccontextmanager
async def tasks_released(task_list: TaskList, owner: Owner, tell: Callable[[Event], None]) -> AsyncIterator[None]:
    """Open the tasks of *owner* again when the block ends: by itself, by an error or by cancellation.

    What cannot be released is an event, and stays claimed until the next start of that name ends.
    """
    try:
        yield
    finally:
        with trio.move_on_after(RELEASING, shield=True):
            try:
                await task_list.release_all(owner)
            except TaskError as exc:
                tell(LayerFailed(layer="tasks", reason=str(exc)))
