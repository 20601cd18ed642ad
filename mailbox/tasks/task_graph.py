"""All tasks with their dependencies, as one change or one query sees them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import attrs

from coterie.mailbox.tasks.errors import TaskDamaged, UnknownTask
from coterie.mailbox.tasks.task import ListedTask, Task, TaskId, TaskState
from coterie.mailbox.tasks.task_files import TaskFiles


@attrs.frozen(kw_only=True)
class TaskListing:
    """What a list holds."""

    tasks: tuple[ListedTask, ...]
    damaged: tuple[TaskDamaged, ...]
    """The files that cannot be read; what is blocked by them stays blocked."""


@attrs.define(eq=False)
class TaskGraph:
    """Reads a file when it is first asked for its task, and once; made anew for every change."""

    files: TaskFiles
    _read: dict[TaskId, Task | TaskDamaged] = attrs.field(factory=dict, init=False)

    def task(self, task_id: TaskId) -> Task:
        """A task, deleted ones too. Raises `UnknownTask` and `TaskDamaged`."""
        found = self._load(task_id)
        if isinstance(found, TaskDamaged):
            raise found
        return found

    def readable(self) -> Iterator[Task]:
        """The tasks that can be read, the oldest first."""
        return (found for found in self._all() if isinstance(found, Task))

    def waits_for(self, task: Task) -> tuple[TaskId, ...]:
        """Which of the tasks that block *task* are not settled, as far as one can tell."""
        return tuple(other for other in task.blocked_by if not self._is_settled(other))

    def find_cycle(self, task_id: TaskId, on: TaskId) -> tuple[TaskId, ...] | None:
        """How tasks would wait for each other if *task_id* waited for *on*; None if they would not."""
        paths: list[tuple[TaskId, ...]] = [(task_id, on)]
        seen: set[TaskId] = set()
        while paths:
            path = paths.pop()
            if path[-1] == task_id:
                return path
            if path[-1] not in seen:
                seen.add(path[-1])
                paths += [(*path, other) for other in self._blockers(path[-1])]
        return None

    def list_all(self) -> TaskListing:
        """Everything, deleted tasks too."""
        found = list(self._all())
        blocks = _inverted(task for task in found if isinstance(task, Task))
        return TaskListing(
            tasks=tuple(self._to_listed(task, blocks[task.id]) for task in found if isinstance(task, Task)),
            damaged=tuple(damage for damage in found if isinstance(damage, TaskDamaged)),
        )

    def list_one(self, task_id: TaskId) -> ListedTask:
        """One task among the others. Raises `UnknownTask` and `TaskDamaged`."""
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
                continue  # removed by hand

    def _load(self, task_id: TaskId) -> Task | TaskDamaged:
        if task_id not in self._read:
            try:
                self._read[task_id] = self.files.read(task_id)
            except TaskDamaged as damage:
                self._read[task_id] = damage
        return self._read[task_id]

    def _is_settled(self, task_id: TaskId) -> bool:
        try:
            return self.task(task_id).is_settled
        except (UnknownTask, TaskDamaged):
            return False

    def _blockers(self, task_id: TaskId) -> tuple[TaskId, ...]:
        try:
            return self.task(task_id).blocked_by
        except (UnknownTask, TaskDamaged):
            return ()


def _inverted(tasks: Iterable[Task]) -> defaultdict[TaskId, list[TaskId]]:
    blocks: defaultdict[TaskId, list[TaskId]] = defaultdict(list)
    for task in tasks:
        for other in task.blocked_by:
            blocks[other].append(task.id)
    return blocks
