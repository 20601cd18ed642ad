"""A task: work for one agent at a time, with its history."""

from typing import Any, Literal, NewType

import attrs
import msgspec

VERSION = 1
LONGEST_SUBJECT = 300
"""Limit in characters."""
LONGEST_DESCRIPTION = 65_536
HISTORY_LIMIT = 500
"""Largest number of history entries: the first one and the newest are kept."""

TaskId = NewType("TaskId", int)
TaskStatus = Literal["open", "in_progress", "done", "deleted"]
TaskState = Literal["open", "blocked", "in_progress", "done", "deleted"]
"""Status as shown: an open task that waits for others is blocked."""


@attrs.frozen(kw_only=True)
class TaskOwner:
    """Owner of tasks: one incarnation of a name, so that a later incarnation owns nothing by mistake."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}" if self.incarnation else self.name


USER = TaskOwner(name="user", incarnation=0)
"""The user. Incarnations of agents count from 1, so no agent equals this owner."""


@attrs.frozen(kw_only=True)
class TaskHistoryEntry:
    """One change in the history of a task."""

    at: float
    """Time in seconds since 1970."""
    by: str
    what: str


@attrs.frozen(kw_only=True)
class Task:
    """A task as stored in its file. Only the file of the waiting task holds a dependency."""

    id: TaskId
    subject: str
    description: str = ""
    status: TaskStatus = "open"
    owner: TaskOwner | None = None
    """The agent that works on the task or, if the task is done, finished it."""
    blocked_by: tuple[TaskId, ...] = ()
    history: tuple[TaskHistoryEntry, ...] = ()
    """Changes of the task, oldest first."""
    created: float
    updated: float
    version: int = 1
    """Number of changes of the task."""
    v: int = VERSION

    @property
    def is_settled(self) -> bool:
        """True if no other task has to wait for this one: it is done or deleted."""
        return self.status in ("done", "deleted")

    def with_change(self, at: float, by: TaskOwner, what: str, **facts: Any) -> "Task":
        """Return the task with other *facts*, and a history entry that describes the change as *what*."""
        history = (*self.history, TaskHistoryEntry(at=at, by=str(by), what=what))
        if len(history) > HISTORY_LIMIT:
            history = (history[0], *history[1 - HISTORY_LIMIT :])
        return attrs.evolve(self, **facts, updated=at, version=self.version + 1, history=history)

    def to_bytes(self) -> bytes:
        """Encode the task as indented JSON with the fields in declaration order."""
        return msgspec.json.format(msgspec.json.encode(attrs.asdict(self)), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Task":
        """Decode a task that `to_bytes` wrote. Raises `ValueError` for any other *data*."""
        try:
            task = _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(str(exc)) from exc
        if task.v != VERSION:
            raise ValueError(f"version {task.v}; this program reads {VERSION}")
        return task


_decoder = msgspec.json.Decoder(Task)


@attrs.frozen(kw_only=True)
class ListedTask(Task):
    """A task with its relations to the other tasks of the list."""

    blocks: tuple[TaskId, ...]
    """Tasks that name this one in their `blocked_by`."""
    waits_for: tuple[TaskId, ...]
    """Tasks of `blocked_by` that are not done."""
    state: TaskState


@attrs.frozen(kw_only=True)
class TaskChange:
    """Changes to make to a task; None leaves a field unchanged."""

    subject: str | None = None
    description: str | None = None
    status: TaskStatus | None = None
    add_blocked_by: tuple[TaskId, ...] = ()
    remove_blocked_by: tuple[TaskId, ...] = ()
