"""The errors of the task list, sorted by who must act.

TaskError
├── TaskRefused         the caller must act: nothing was changed
│   ├── UnknownTask         no task has this number
│   ├── TaskListFull        the list has reached its limit
│   ├── TaskInvalid         a text that a task cannot hold
│   ├── TaskOwned           another agent works on the task
│   ├── TaskDone            the task is done; reopen it first
│   ├── TaskBlocked         other tasks must be done first
│   ├── TaskDeleted         the task was deleted
│   └── DependencyCycle     tasks would wait for each other
├── TaskDamaged         a file is not a valid task; other tasks are not affected
├── TasksBusy           the lock of the list could not be acquired in time
└── TasksFailed         disk error
"""

from pathlib import Path

import attrs

from coterie.mailbox.errors import MailboxError, PathError
from coterie.mailbox.tasks.task import TaskId, TaskOwner


class TaskError(MailboxError):
    """Base of all errors that the task list raises on purpose."""


class TaskRefused(TaskError):
    """Nothing was changed, and a retry would be refused again unless the list changes."""


@attrs.define(eq=False)
class UnknownTask(TaskRefused):
    """No task has this number."""

    id: int
    highest: int
    """The highest number in use; 0 if there is no task."""

    def __str__(self) -> str:
        hint = f"the highest number is {self.highest}" if self.highest else "there are no tasks yet"
        return f"there is no task {self.id}; {hint}"


@attrs.define(eq=False)
class TaskListFull(TaskRefused):
    """All numbers of the list are in use."""

    limit: int

    def __str__(self) -> str:
        return f"the task list is full: task numbers end at {self.limit:,}"


@attrs.define(eq=False)
class TaskInvalid(TaskRefused):
    """A text that a task cannot hold."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"the {self.field} cannot be used: {self.reason}"


@attrs.define(eq=False)
class TaskOwned(TaskRefused):
    """A task in progress belongs to another owner."""

    id: TaskId
    owner: TaskOwner

    def __str__(self) -> str:
        return f"task {self.id} is in progress; its owner is {self.owner}"


@attrs.define(eq=False)
class TaskDone(TaskRefused):
    """A done task cannot be claimed."""

    id: TaskId
    owner: TaskOwner | None
    """The agent that finished the task; None if unknown."""

    def __str__(self) -> str:
        return f"task {self.id} is done{f' by {self.owner}' if self.owner else ''}; reopen it to work on it again"


@attrs.define(eq=False)
class TaskBlocked(TaskRefused):
    """A task that depends on unfinished tasks."""

    id: TaskId
    waits_for: tuple[TaskId, ...]
    """Blocking tasks that are not done or cannot be read."""

    def __str__(self) -> str:
        others = ", ".join(map(str, self.waits_for))
        return f"task {self.id} is blocked: it waits for task{'s' * (len(self.waits_for) > 1)} {others}"


@attrs.define(eq=False)
class TaskDeleted(TaskRefused):
    """A deleted task cannot be changed; its number is not reused."""

    id: TaskId
    by: str

    def __str__(self) -> str:
        return f"task {self.id} was deleted by {self.by}"


@attrs.define(eq=False)
class DependencyCycle(TaskRefused):
    """A dependency that would make tasks wait for each other."""

    path: tuple[TaskId, ...]
    """Tasks of the cycle: each waits for the next, and the first is repeated at the end."""

    def __str__(self) -> str:
        return f"tasks would wait for each other: {' -> '.join(map(str, self.path))}"


@attrs.define(eq=False)
class TaskDamaged(TaskError):
    """A file of the list that is not a valid task."""

    id: TaskId
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: cannot be read as a task: {self.reason}; repair the file, or delete task {self.id}"


@attrs.define(eq=False)
class TasksBusy(TaskError):
    """The lock of the list could not be acquired in time."""

    directory: Path
    seconds: float
    """Time that was waited for the lock."""

    def __str__(self) -> str:
        return f"{self.directory}: another process has held its lock for {self.seconds:g} s; try again"


class TasksFailed(TaskError, PathError):
    """Disk error. The task is unchanged or, if only flushing failed, changed as requested."""
