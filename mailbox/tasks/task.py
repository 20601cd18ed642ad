"""Tasks of a session's shared task list. A task is work for one agent at a time, with a history of its changes."""

from typing import Any, Literal, NewType

import attrs
import msgspec

VERSION = 1
LONGEST_SUBJECT = 300
"""Greatest length of the subject of a task, in characters."""
LONGEST_DESCRIPTION = 65_536
HISTORY_LIMIT = 500
"""Largest number of history entries of one task. If there are more, only the first and the newest 499 are kept."""

TaskId = NewType("TaskId", int)
TaskStatus = Literal["open", "in_progress", "done", "deleted"]
TaskState = Literal["open", "blocked", "in_progress", "done", "deleted"]
"""Status of a task as shown to users and agents: an open task that waits for other tasks is shown as `blocked`."""


@attrs.frozen(kw_only=True)
class TaskOwner:
    """Owner of a task: the user, or one incarnation (numbered start) of an agent.

    A new incarnation of an agent is another owner: it owns tasks of the earlier one only after `TaskList.take_over`.
    """

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}" if self.incarnation else self.name


USER = TaskOwner(name="user", incarnation=0)
"""The user as the owner of a task. Incarnations of agents count from 1, so no agent equals this owner."""


@attrs.frozen(kw_only=True)
class TaskHistoryEntry:
    """One entry in the history of a task: the time, the author and a short description of a change."""

    at: float
    """Time of the change, in seconds since 1970."""
    by: str
    what: str


@attrs.frozen(kw_only=True)
class Task:
    """A task as stored in its file. A dependency is stored only in the waiting task, as `blocked_by`."""

    id: TaskId
    subject: str
    description: str = ""
    status: TaskStatus = "open"
    owner: TaskOwner | None = None
    """Agent or user that works on the task, or had it when it was done; None for an open or deleted task."""
    blocked_by: tuple[TaskId, ...] = ()
    history: tuple[TaskHistoryEntry, ...] = ()
    """Changes of the task, oldest first."""
    created: float
    updated: float
    version: int = 1
    """Number of changes of the task, including its creation."""
    v: int = VERSION

    @property
    def is_settled(self) -> bool:
        """True if no other task has to wait for this one: it is done or deleted."""
        return self.status in ("done", "deleted")

    def with_change(self, at: float, by: TaskOwner, what: str, **facts: Any) -> "Task":
        """Return a copy of the task with the fields in *facts* changed.

        It has the next version, and a new history entry, which says that *by* made the change *what* at the time *at*.
        """
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
            raise ValueError(f"the task has format version {task.v}, but this program reads only version {VERSION}")
        return task


_decoder = msgspec.json.Decoder(Task)


@attrs.frozen(kw_only=True)
class ListedTask(Task):
    """A task with its relations to the other tasks of the list."""

    blocks: tuple[TaskId, ...]
    """Tasks that name this one in their `blocked_by`."""
    waits_for: tuple[TaskId, ...]
    """Tasks in `blocked_by` that are unreadable, or neither done nor deleted; empty if this task is done or deleted."""
    state: TaskState


@attrs.frozen(kw_only=True)
class TaskChange:
    """Changes that a caller requests for one task. None leaves a field unchanged."""

    subject: str | None = None
    description: str | None = None
    status: TaskStatus | None = None
    add_blocked_by: tuple[TaskId, ...] = ()
    remove_blocked_by: tuple[TaskId, ...] = ()
