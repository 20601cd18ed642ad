"""Release of an agent's tasks when its run has ended."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.mailbox.tasks.errors import TaskError
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

RELEASE_TIMEOUT = 15.0
"""Seconds for releasing tasks; a little more than the timeout of the task list's lock."""


@asynccontextmanager
async def releasing_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> AsyncIterator[None]:
    """Release the tasks of *owner* when the block ends, also after an error or cancellation.

    At the beginning, *owner* takes over the tasks of an earlier incarnation that crashed. A task that cannot be taken
    over or released is an event; a task that cannot be released stays claimed until the next incarnation ends.
    """
    try:
        if owner.incarnation > 1:
            with _reporting_errors(emit):
                await task_list.take_over(owner)
        yield
    finally:
        await release_tasks(task_list, owner, emit)


async def release_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> None:
    """Release the tasks of *owner*, an agent that has ended, even if cancelled. A failure is an event."""
    with trio.move_on_after(RELEASE_TIMEOUT, shield=True), _reporting_errors(emit):
        await task_list.release_all(owner)


@contextmanager
def _reporting_errors(emit: Callable[[Event], None]) -> Iterator[None]:
    try:
        yield
    except TaskError as exc:
        emit(LayerFailed(layer="tasks", reason=str(exc)))
