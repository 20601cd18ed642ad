"""The task list of a session, shared by all its processes under one lock."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.tasks.errors import TaskDamaged
from coterie.mailbox.tasks.task import ListedTask, Task, TaskChange, TaskId, TaskOwner, TaskState
from coterie.mailbox.tasks.task_files import LOCK_TIMEOUT, TaskFiles
from coterie.mailbox.tasks.task_graph import TaskGraph, TaskListing
from coterie.mailbox.tasks.task_rules import claim_task, make_tombstone, new_task, update_task

Result = TypeVar("Result")

PRESENT: frozenset[TaskState] = frozenset({"open", "blocked", "in_progress", "done"})


@attrs.define(eq=False)
class TaskList:
    """The tasks in *directory*, which is made with the first of them; its parent must exist.

    Any number of processes may use it at once. A change is made whole or not at all, and finished once it has begun,
    also when it is cancelled. It raises `TasksBusy` if the lock cannot be had within *lock_timeout* seconds, and
    `TasksFailed` if the disk refuses. Looking takes no lock.
    """

    directory: Path
    clock: Clock
    lock_timeout: float = LOCK_TIMEOUT
    is_durable: bool = True
    """Whether a change survives a power cut, too; it always survives the death of every process."""
    _files: TaskFiles = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._files = TaskFiles(self.directory, self.lock_timeout, self.is_durable)

    async def create(
        self, subject: str, *, by: TaskOwner, description: str = "", blocked_by: Iterable[TaskId] = ()
    ) -> Task:
        """A new task, with a number that none had before. Raises `TaskRefused`."""

        def create(board: TaskGraph) -> Task:
            at = self.clock.now()
            task = new_task(board, at, by, subject=subject, description=description, blocked_by=blocked_by)
            board.files.write(task)
            return task

        return await self._change(create)

    async def get(self, task_id: TaskId) -> ListedTask:
        """A task, also a deleted one. Raises `UnknownTask` and `TaskDamaged`."""
        return await self._query(lambda board: board.list_one(task_id))

    async def list(self, *, states: Collection[TaskState] = PRESENT, owner: str | None = None) -> TaskListing:
        """The tasks in one of *states*, of *owner* if one is named; and which files are damaged."""
        found = await self._query(TaskGraph.list_all)
        tasks = (task for task in found.tasks if task.state in states)
        owned = (task for task in tasks if owner is None or (task.owner is not None and task.owner.name == owner))
        return attrs.evolve(found, tasks=tuple(owned))

    async def claim(self, task_id: TaskId, owner: TaskOwner) -> Task:
        """Make the task the work of *owner*: of all who claim it at once, one gets it. Claiming it again does no harm.

        Raises `UnknownTask`, `TaskDamaged`, `TaskDeleted`, `TaskDone`, `TaskOwned` and `TaskBlocked`.
        """
        return await self._change_one(task_id, lambda board, task: claim_task(board, task, self.clock.now(), owner))

    async def claim_next(self, owner: TaskOwner) -> Task | None:
        """Claim the oldest open task that waits for nothing; None if there is none."""

        def claim(board: TaskGraph) -> Task | None:
            free = (task for task in board.readable() if task.status == "open" and not board.waits_for(task))
            task = next(free, None)
            return task and _store(board, task, claim_task(board, task, self.clock.now(), owner))

        return await self._change(claim)

    async def update(self, task_id: TaskId, by: TaskOwner, change: TaskChange) -> Task:
        """Make all of *change*, or raise `TaskRefused` or `TaskDamaged`.

        The status of a task in progress is for its owner, the lead and the user to change; the rest for everybody.
        """
        return await self._change_one(
            task_id, lambda board, task: update_task(board, task, self.clock.now(), by, change)
        )

    async def add_dependency(self, task_id: TaskId, on: TaskId, by: TaskOwner) -> Task:
        """Let *task_id* wait until *on* is done. Raises `DependencyCycle`, and as `update` does."""
        return await self.update(task_id, by, TaskChange(add_blocked_by=(on,)))

    async def release(self, task_id: TaskId, by: TaskOwner) -> Task:
        """Open the task for others again. Raises as `update` does."""
        return await self.update(task_id, by, TaskChange(status="open"))

    async def take_over(self, owner: TaskOwner) -> tuple[Task, ...]:
        """Let whatever an earlier start of *owner* was at work on be its own: it goes on with it."""

        def take_over(board: TaskGraph) -> tuple[Task, ...]:
            left = [task for task in _in_progress(board, owner) if task.owner != owner]
            at = self.clock.now()
            return tuple(_store(board, task, task.with_change(at, owner, "taken over", owner=owner)) for task in left)

        return await self._change(take_over)

    async def release_all(self, owner: TaskOwner) -> tuple[Task, ...]:
        """Open whatever *owner*, or an earlier start of that name, is at work on: it has ended.

        Each task is released by itself; call it again after an error.
        """

        def release(board: TaskGraph) -> tuple[Task, ...]:
            left = _in_progress(board, owner)
            at = self.clock.now()
            what = "released: its owner has ended"
            return tuple(
                _store(board, task, task.with_change(at, owner, what, status="open", owner=None)) for task in left
            )

        return await self._change(release)

    async def delete(self, task_id: TaskId, by: TaskOwner) -> Task:
        """Leave a tombstone with the task's history, also in the place of a damaged file. Nothing waits for it then.

        Raises as `update` does.
        """

        def delete(board: TaskGraph) -> Task:
            at = self.clock.now()
            try:
                task = board.task(task_id)
            except TaskDamaged as damage:
                dead = make_tombstone(task_id, at, by, damage.reason)
                board.files.write(dead)
                return dead
            return _store(board, task, update_task(board, task, at, by, TaskChange(status="deleted")))

        return await self._change(delete)

    async def _change_one(self, task_id: TaskId, alter: Callable[[TaskGraph, Task], Task]) -> Task:
        def change(board: TaskGraph) -> Task:
            task = board.task(task_id)
            return _store(board, task, alter(board, task))

        return await self._change(change)

    async def _change(self, change: Callable[[TaskGraph], Result]) -> Result:
        def locked() -> Result:
            with self._files.lock():
                return change(TaskGraph(self._files))

        return await trio.to_thread.run_sync(locked)

    async def _query(self, look: Callable[[TaskGraph], Result]) -> Result:
        return await trio.to_thread.run_sync(look, TaskGraph(self._files), abandon_on_cancel=True)


def _store(board: TaskGraph, before: Task, after: Task) -> Task:
    if after is not before:
        board.files.write(after)
    return after


def _in_progress(board: TaskGraph, owner: TaskOwner) -> list[Task]:
    return [task for task in board.readable() if task.status == "in_progress" and _is_from(task, owner)]


def _is_from(task: Task, owner: TaskOwner) -> bool:
    """Whether the task's owner is *owner* or was before it; at most one start of a name lives."""
    return task.owner is not None and task.owner.name == owner.name and task.owner.incarnation <= owner.incarnation
