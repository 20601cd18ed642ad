"""Release of an agent's tasks when its run has ended."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.mailbox.tasks.errors import TaskError
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

RELEASING = 15.0
"""Seconds that giving tasks back may take; a little more than the lock of the list is waited for."""


@asynccontextmanager
async def releasing_tasks(task_list: TaskList, owner: TaskOwner, tell: Callable[[Event], None]) -> AsyncIterator[None]:
    """Open the tasks of *owner* again when the block ends: by itself, by an error or by cancellation.

    Those of an earlier start, which crashed, are its own from the beginning. What cannot be taken over or released is
    an event; the latter stays claimed until the next start of that name ends.
    """
    try:
        if owner.incarnation > 1:
            with _reporting_errors(tell):
                await task_list.take_over(owner)
        yield
    finally:
        await release_tasks(task_list, owner, tell)


async def release_tasks(task_list: TaskList, owner: TaskOwner, tell: Callable[[Event], None]) -> None:
    """Open the tasks of *owner*, who has ended, also when cancelled. What cannot be released is an event."""
    with trio.move_on_after(RELEASING, shield=True), _reporting_errors(tell):
        await task_list.release_all(owner)


@contextmanager
def _reporting_errors(tell: Callable[[Event], None]) -> Iterator[None]:
    try:
        yield
    except TaskError as exc:
        tell(LayerFailed(layer="tasks", reason=str(exc)))
