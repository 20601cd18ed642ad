"""The errors of a session's task list, grouped by who must act.

TaskError
├── TaskRefused         the caller must act: nothing was changed
│   ├── UnknownTask         no task has this number
│   ├── TaskListFull        the list has reached its limit
│   ├── TaskInvalid         a text cannot be stored in a task
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
    """A request to the task list was rejected. It changed nothing, and fails again unless the list changes."""


@attrs.define(eq=False)
class UnknownTask(TaskRefused):
    """No task of the list has this number."""

    id: int
    highest: int
    """The highest number of a task in the list, even of a deleted one; 0 if there is no task."""

    def __str__(self) -> str:
        hint = f"the highest number is {self.highest}" if self.highest else "there are no tasks yet"
        return f"there is no task {self.id}; {hint}"


@attrs.define(eq=False)
class TaskListFull(TaskRefused):
    """No task can be added, because all task numbers are in use."""

    limit: int

    def __str__(self) -> str:
        return f"the task list is full: task numbers end at {self.limit:,}"


@attrs.define(eq=False)
class TaskInvalid(TaskRefused):
    """A text cannot be stored in a task, because it is empty, too long or cannot be encoded."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"the {self.field} cannot be used: {self.reason}"


@attrs.define(eq=False)
class TaskOwned(TaskRefused):
    """Another owner works on the task, so the caller can neither claim the task nor change its status."""

    id: TaskId
    owner: TaskOwner

    def __str__(self) -> str:
        return f"task {self.id} is in progress; its owner is {self.owner}"


@attrs.define(eq=False)
class TaskDone(TaskRefused):
    """The task is done, so it cannot be claimed unless it is reopened first."""

    id: TaskId
    owner: TaskOwner | None
    """Owner of the task when it was marked as done; None if unknown."""

    def __str__(self) -> str:
        return f"task {self.id} is done{f' by {self.owner}' if self.owner else ''}; reopen it to work on it again"


@attrs.define(eq=False)
class TaskBlocked(TaskRefused):
    """The task can be neither claimed nor marked as done, because it depends on tasks that are not done."""

    id: TaskId
    waits_for: tuple[TaskId, ...]
    """Numbers of the tasks that must be done first. They are not done, or their files cannot be read."""

    def __str__(self) -> str:
        others = ", ".join(map(str, self.waits_for))
        return f"task {self.id} is blocked: it waits for task{'s' * (len(self.waits_for) > 1)} {others}"


@attrs.define(eq=False)
class TaskDeleted(TaskRefused):
    """The task was deleted, so it can neither be changed nor block other tasks. Its number is not reused."""

    id: TaskId
    by: str

    def __str__(self) -> str:
        return f"task {self.id} was deleted by {self.by}"


@attrs.define(eq=False)
class DependencyCycle(TaskRefused):
    """A new dependency was rejected, because tasks would wait for each other in a cycle."""

    path: tuple[TaskId, ...]
    """Numbers of the tasks in the cycle. Each waits for the next, and the first number is repeated at the end."""

    def __str__(self) -> str:
        return f"tasks would wait for each other: {' -> '.join(map(str, self.path))}"


@attrs.define(eq=False)
class TaskDamaged(TaskError):
    """A file of the task list cannot be read or does not contain a valid task."""

    id: TaskId
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: cannot be read as a task: {self.reason}; repair the file, or delete task {self.id}"


@attrs.define(eq=False)
class TasksBusy(TaskError):
    """The lock of the task list could not be acquired in time, because another process held it."""

    directory: Path
    seconds: float
    """Seconds for which the caller waited for the lock."""

    def __str__(self) -> str:
        return f"{self.directory}: another process has held its lock for {self.seconds:g} s; try again"


class TasksFailed(TaskError, PathError):
    """Disk error. The task is unchanged or, if only flushing the file failed, changed as requested."""
