"""What an agent was at work on is open for others once it has ended, however it did."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from coterie.agents.events import Event, LayerFailed
from coterie.mailbox.tasks import Owner, TaskList
from coterie.mailbox.tasks.errors import TaskError

RELEASING = 15.0
"""Seconds that giving tasks back may take; a little more than the lock of the list is waited for."""


@asynccontextmanager
async def tasks_released(task_list: TaskList, owner: Owner, tell: Callable[[Event], None]) -> AsyncIterator[None]:
    """Open the tasks of *owner* again when the block ends: by itself, by an error or by cancellation.

    Those of an earlier start, which crashed, are its own from the beginning. What cannot be taken over or released is
    an event; the latter stays claimed until the next start of that name ends.
    """
    try:
        if owner.incarnation > 1:
            with _telling(tell):
                await task_list.take_over(owner)
        yield
    finally:
        await release_tasks(task_list, owner, tell)


async def release_tasks(task_list: TaskList, owner: Owner, tell: Callable[[Event], None]) -> None:
    """Open the tasks of *owner*, who has ended, also when cancelled. What cannot be released is an event."""
    with trio.move_on_after(RELEASING, shield=True), _telling(tell):
        await task_list.release_all(owner)


@contextmanager
def _telling(tell: Callable[[Event], None]) -> Iterator[None]:
    try:
        yield
    except TaskError as exc:
        tell(LayerFailed(layer="tasks", reason=str(exc)))
