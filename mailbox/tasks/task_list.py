"""Task list of a session. All processes of the session use it, and a lock prevents concurrent changes."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.tasks.errors import TaskDamaged
from coterie.mailbox.tasks.task import ListedTask, Task, TaskChange, TaskId, TaskOwner, TaskState, TaskStatus
from coterie.mailbox.tasks.task_files import LOCK_TIMEOUT, TaskFiles
from coterie.mailbox.tasks.task_graph import TaskGraph, TaskListing
from coterie.mailbox.tasks.task_rules import claim_task, make_tombstone, new_task, update_task

Result = TypeVar("Result")

PRESENT: frozenset[TaskState] = frozenset({"open", "blocked", "in_progress", "done"})


@attrs.define(eq=False)
class TaskList:
    """The task list in *directory*. The first change creates this directory; the parent directory must exist.

    Any number of processes may use the list at the same time. A change of one task is atomic. A begun change completes
    even after a cancellation. A change raises `TasksBusy` if the lock is not acquired within *lock_timeout* seconds,
    and `TasksFailed` on a disk error. Queries do not wait for the lock.
    """

    directory: Path
    clock: Clock
    lock_timeout: float = LOCK_TIMEOUT
    is_durable: bool = True
    """True if changes survive a power cut; they always survive a crash of all processes."""
    _files: TaskFiles = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._files = TaskFiles(self.directory, self.lock_timeout, self.is_durable)

    async def create(
        self, subject: str, *, by: TaskOwner, description: str = "", blocked_by: Iterable[TaskId] = ()
    ) -> Task:
        """Add a task with an unused number. Raises `TaskRefused`, or `TaskDamaged` if a blocking task is unreadable."""

        def create(graph: TaskGraph) -> Task:
            at = self.clock.now()
            task = new_task(graph, at, by, subject=subject, description=description, blocked_by=blocked_by)
            graph.files.write(task)
            return task

        return await self._change(create)

    async def get(self, task_id: TaskId) -> ListedTask:
        """Return a task with its relations, even if it is deleted. Raises `UnknownTask` and `TaskDamaged`."""
        return await self._query(lambda graph: graph.list_one(task_id))

    async def list(self, *, states: Collection[TaskState] = PRESENT, owner: str | None = None) -> TaskListing:
        """Return the tasks in one of *states*, only those of agent *owner* if given, and all damaged files."""
        found = await self._query(TaskGraph.list_all)
        tasks = (task for task in found.tasks if task.state in states)
        owned = (task for task in tasks if owner is None or (task.owner is not None and task.owner.name == owner))
        return attrs.evolve(found, tasks=tuple(owned))

    async def claim(self, task_id: TaskId, owner: TaskOwner) -> Task:
        """Make *owner* the owner of the task, and the task in progress. Of concurrent claims only one succeeds.

        A second claim by the same owner changes nothing.

        Raises `UnknownTask`, `TaskDamaged`, `TaskDeleted`, `TaskDone`, `TaskOwned` and `TaskBlocked`.
        """
        return await self._change_one(task_id, lambda graph, task: claim_task(graph, task, self.clock.now(), owner))

    async def claim_next(self, owner: TaskOwner) -> Task | None:
        """Claim the oldest open task that is not blocked, and return it; None if no task can be claimed."""

        def claim(graph: TaskGraph) -> Task | None:
            free = (task for task in graph.readable() if task.status == "open" and not graph.waits_for(task))
            task = next(free, None)
            return task and _store(graph, task, claim_task(graph, task, self.clock.now(), owner))

        return await self._change(claim)

    async def update(self, task_id: TaskId, by: TaskOwner, change: TaskChange) -> Task:
        """Apply all of *change* to the task and return it, or change nothing and raise `TaskRefused` or `TaskDamaged`.

        Only the owner, the lead (the first agent of the session) and the user may change the status of a task in
        progress. Any agent may change the other fields.
        """
        return await self._change_one(
            task_id, lambda graph, task: update_task(graph, task, self.clock.now(), by, change)
        )

    async def take_over(self, owner: TaskOwner) -> tuple[Task, ...]:
        """Make *owner* the owner of the tasks in progress of its earlier incarnations (starts), to continue them.

        Return these tasks.
        """
        return await self._change_running(owner, "taken over", "in_progress", owner)

    async def release_all(self, owner: TaskOwner) -> tuple[Task, ...]:
        """Reopen all tasks in progress of *owner* and of its earlier incarnations (starts), because *owner* has ended.

        Return these tasks. Each task is written separately, so call this again after an error.
        """
        return await self._change_running(owner, "released: its owner has ended", "open", None)

    async def delete(self, task_id: TaskId, by: TaskOwner) -> Task:
        """Mark the task as deleted. Its number and history are kept, and no task waits for it any longer.

        A damaged file is replaced by a deleted task without its history. Raises `TaskRefused`.
        """

        def delete(graph: TaskGraph) -> Task:
            at = self.clock.now()
            try:
                task = graph.task(task_id)
            except TaskDamaged as damage:
                dead = make_tombstone(task_id, at, by, damage.reason)
                graph.files.write(dead)
                return dead
            return _store(graph, task, update_task(graph, task, at, by, TaskChange(status="deleted")))

        return await self._change(delete)

    async def _change_running(
        self, owner: TaskOwner, what: str, status: TaskStatus, new_owner: TaskOwner | None
    ) -> tuple[Task, ...]:
        """Set *status* and *new_owner* of all tasks in progress of *owner* or its earlier starts, and return them."""

        def change(graph: TaskGraph) -> tuple[Task, ...]:
            changed, at = list[Task](), self.clock.now()
            for task in graph.readable():
                old = task.owner
                if task.status != "in_progress" or old is None or old == new_owner:
                    continue
                if old.name == owner.name and old.incarnation <= owner.incarnation:
                    after = task.with_change(at, owner, what, status=status, owner=new_owner)
                    changed.append(_store(graph, task, after))
            return tuple(changed)

        return await self._change(change)

    async def _change_one(self, task_id: TaskId, alter: Callable[[TaskGraph, Task], Task]) -> Task:
        def change(graph: TaskGraph) -> Task:
            task = graph.task(task_id)
            return _store(graph, task, alter(graph, task))

        return await self._change(change)

    async def _change(self, change: Callable[[TaskGraph], Result]) -> Result:
        def locked() -> Result:
            with self._files.lock():
                return change(TaskGraph(self._files))

        return await trio.to_thread.run_sync(locked)

    async def _query(self, query: Callable[[TaskGraph], Result]) -> Result:
        return await trio.to_thread.run_sync(query, TaskGraph(self._files), abandon_on_cancel=True)


def _store(graph: TaskGraph, before: Task, after: Task) -> Task:
    if after is not before:
        graph.files.write(after)
    return after
