"""The errors of the task list, sorted by who must act.

TaskError
├── TaskRefused         the caller must act: nothing was changed
│   ├── UnknownTask         there is no task with this number
│   ├── TaskListFull        there are as many tasks as there can be
│   ├── TaskInvalid         a text of a task cannot be kept as it is
│   ├── TaskOwned           somebody else is at work on it
│   ├── TaskDone            it is done; reopen it first
│   ├── TaskBlocked         other tasks must be done before
│   ├── TaskDeleted         it was deleted
│   └── DependencyCycle     tasks would wait for each other
├── TaskDamaged         a file is no task; the others are not concerned
├── TasksBusy           the lock of the list was not to be had in time
└── TasksFailed         the disk refused
"""

from pathlib import Path

import attrs

from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.task import TaskId, TaskOwner


class TaskError(MailboxError):
    """Base of everything the task list raises on purpose."""


class TaskRefused(TaskError):
    """Nothing was changed, and nothing would be if it were tried again as things are."""


@attrs.define(eq=False)
class UnknownTask(TaskRefused):
    """No task has this number."""

    id: int
    highest: int
    """The highest number there is; 0 if there is no task."""

    def __str__(self) -> str:
        there_is = f"their numbers go up to {self.highest}" if self.highest else "there are none yet"
        return f"there is no task {self.id}; {there_is}"


@attrs.define(eq=False)
class TaskListFull(TaskRefused):
    """All numbers are given."""

    limit: int

    def __str__(self) -> str:
        return f"the task list is full: the numbers go up to {self.limit:,}"


@attrs.define(eq=False)
class TaskInvalid(TaskRefused):
    """A text that no task can have."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"the {self.field} cannot be used: {self.reason}"


@attrs.define(eq=False)
class TaskOwned(TaskRefused):
    """A task is somebody's, so others keep their hands off it."""

    id: TaskId
    owner: TaskOwner

    def __str__(self) -> str:
        return f"task {self.id} is in progress; its owner is {self.owner}"


@attrs.define(eq=False)
class TaskDone(TaskRefused):
    """A task that is done cannot be claimed."""

    id: TaskId
    owner: TaskOwner | None
    """Who did it, if that is known."""

    def __str__(self) -> str:
        return f"task {self.id} is done{f' by {self.owner}' if self.owner else ''}; reopen it to work on it again"


@attrs.define(eq=False)
class TaskBlocked(TaskRefused):
    """A task waits for others."""

    id: TaskId
    waits_for: tuple[TaskId, ...]
    """The tasks it is blocked by that are not done, or cannot be read."""

    def __str__(self) -> str:
        others = ", ".join(map(str, self.waits_for))
        return f"task {self.id} is blocked: it waits for task{'s' * (len(self.waits_for) > 1)} {others}"


@attrs.define(eq=False)
class TaskDeleted(TaskRefused):
    """A task that was deleted cannot be changed; its number is not given to another."""

    id: TaskId
    by: str

    def __str__(self) -> str:
        return f"task {self.id} was deleted by {self.by}"


@attrs.define(eq=False)
class DependencyCycle(TaskRefused):
    """A dependency that would make tasks wait for each other."""

    path: tuple[TaskId, ...]
    """Each waits for the next; the first is the last."""

    def __str__(self) -> str:
        return f"tasks would wait for each other: {' -> '.join(map(str, self.path))}"


@attrs.define(eq=False)
class TaskDamaged(TaskError):
    """A file of the list is no task."""

    id: TaskId
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: cannot be read as a task: {self.reason}; mend it, or delete task {self.id}"


@attrs.define(eq=False)
class TasksBusy(TaskError):
    """Somebody else was changing the list all the time."""

    directory: Path
    seconds: float
    """How long it was waited for."""

    def __str__(self) -> str:
        return f"{self.directory}: another process has held its lock for {self.seconds:g} s; try again"


@attrs.define(eq=False)
class TasksFailed(TaskError):
    """The disk refused; the task is as it was, or, if only flushing failed, as it was to be."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
