"""Graph of all tasks and their dependencies. It is read again for each change and each query of the task list."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import attrs

from coterie.mailbox.tasks.errors import TaskDamaged, UnknownTask
from coterie.mailbox.tasks.task import ListedTask, Task, TaskId, TaskState
from coterie.mailbox.tasks.task_files import TaskFiles


@attrs.frozen(kw_only=True)
class TaskListing:
    """Result of listing the tasks: the tasks, and the files that cannot be read as tasks."""

    tasks: tuple[ListedTask, ...]
    damaged: tuple[TaskDamaged, ...]
    """One error for each file that cannot be read. Tasks that depend on the task in such a file stay blocked."""


@attrs.define(eq=False)
class TaskGraph:
    """Tasks and dependencies of one task list. It reads each file only once, so every change needs a new graph."""

    files: TaskFiles
    _read: dict[TaskId, Task | TaskDamaged] = attrs.field(factory=dict, init=False)

    def task(self, task_id: TaskId) -> Task:
        """Return a task, even if it is deleted. Raises `UnknownTask` and `TaskDamaged`."""
        found = self._load(task_id)
        if isinstance(found, TaskDamaged):
            raise found
        return found

    def readable(self) -> Iterator[Task]:
        """Return the tasks whose files can be read, including deleted tasks, oldest first."""
        return (found for found in self._all() if isinstance(found, Task))

    def waits_for(self, task: Task) -> tuple[TaskId, ...]:
        """Return the numbers of the tasks that block *task*: neither done nor deleted, or without a readable file."""
        found = ((other, self._find(other)) for other in task.blocked_by)
        return tuple(other for other, blocker in found if blocker is None or not blocker.is_settled)

    def find_cycle(self, task_id: TaskId, on: TaskId) -> tuple[TaskId, ...] | None:
        """Return the task numbers of the cycle that arises if task *task_id* waits for *on*; None if none arises."""
        paths: list[tuple[TaskId, ...]] = [(task_id, on)]
        seen: set[TaskId] = set()
        while paths:
            path = paths.pop()
            if path[-1] == task_id:
                return path
            if path[-1] not in seen:
                seen.add(path[-1])
                waiting = self._find(path[-1])
                paths += [(*path, other) for other in (waiting.blocked_by if waiting else ())]
        return None

    def list_all(self) -> TaskListing:
        """Return all tasks, including deleted tasks, and the damaged files."""
        found = list(self._all())
        blocks = _inverted(task for task in found if isinstance(task, Task))
        return TaskListing(
            tasks=tuple(self._to_listed(task, blocks[task.id]) for task in found if isinstance(task, Task)),
            damaged=tuple(damage for damage in found if isinstance(damage, TaskDamaged)),
        )

    def list_one(self, task_id: TaskId) -> ListedTask:
        """Return one task with its relations to other tasks. Raises `UnknownTask` and `TaskDamaged`."""
        return self._to_listed(self.task(task_id), _inverted(self.readable())[task_id])

    def _to_listed(self, task: Task, blocks: Iterable[TaskId]) -> ListedTask:
        waits_for = () if task.is_settled else self.waits_for(task)
        state: TaskState = "blocked" if task.status == "open" and waits_for else task.status
        facts = attrs.asdict(task, recurse=False)
        return ListedTask(**facts, blocks=tuple(blocks), waits_for=waits_for, state=state)

    def _all(self) -> Iterator[Task | TaskDamaged]:
        for task_id in self.files.ids():
            try:
                yield self._load(task_id)
            except UnknownTask:
                continue  # the user removed the file

    def _load(self, task_id: TaskId) -> Task | TaskDamaged:
        if task_id not in self._read:
            try:
                self._read[task_id] = self.files.read(task_id)
            except TaskDamaged as damage:
                self._read[task_id] = damage
        return self._read[task_id]

    def _find(self, task_id: TaskId) -> Task | None:
        """Return a task; None if its file is missing or damaged."""
        try:
            return self.task(task_id)
        except (UnknownTask, TaskDamaged):
            return None


def _inverted(tasks: Iterable[Task]) -> defaultdict[TaskId, list[TaskId]]:
    blocks: defaultdict[TaskId, list[TaskId]] = defaultdict(list)
    for task in tasks:
        for other in task.blocked_by:
            blocks[other].append(task.id)
    return blocks
