"""A task: work for one agent at a time, with its history."""

from typing import Any, Literal, NewType

import attrs
import msgspec

VERSION = 1
LONGEST_SUBJECT = 300
"""Characters of a subject."""
LONGEST_DESCRIPTION = 65_536
HISTORY_LIMIT = 500
"""Entries that a history keeps: the first, and the newest."""

TaskId = NewType("TaskId", int)
TaskStatus = Literal["open", "in_progress", "done", "deleted"]
TaskState = Literal["open", "blocked", "in_progress", "done", "deleted"]
"""A status; an open task that waits for others is blocked."""


@attrs.frozen(kw_only=True)
class TaskOwner:
    """Somebody who works on tasks: one start of a name, so that a later start owns nothing by mistake."""

    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name}#{self.incarnation}" if self.incarnation else self.name


USER = TaskOwner(name="user", incarnation=0)
"""The human; agents count their starts from 1, so none of them can be this one."""


@attrs.frozen(kw_only=True)
class TaskHistoryEntry:
    """One change of a task."""

    at: float
    """Seconds since 1970."""
    by: str
    what: str


@attrs.frozen(kw_only=True)
class Task:
    """A task as its file holds it. A dependency stands in the file of the task that waits, and only there."""

    id: TaskId
    subject: str
    description: str = ""
    status: TaskStatus = "open"
    owner: TaskOwner | None = None
    """Who is at work on it or, of a task that is done, who did it."""
    blocked_by: tuple[TaskId, ...] = ()
    history: tuple[TaskHistoryEntry, ...] = ()
    """Oldest first."""
    created: float
    updated: float
    version: int = 1
    """Counts its changes."""
    v: int = VERSION

    @property
    def is_settled(self) -> bool:
        """Whether nothing has to wait for it any more."""
        return self.status in ("done", "deleted")

    def with_change(self, at: float, by: TaskOwner, what: str, **facts: Any) -> "Task":
        """The task with other *facts*, and an entry that says *what* was done."""
        history = (*self.history, TaskHistoryEntry(at=at, by=str(by), what=what))
        if len(history) > HISTORY_LIMIT:
            history = (history[0], *history[1 - HISTORY_LIMIT :])
        return attrs.evolve(self, **facts, updated=at, version=self.version + 1, history=history)

    def to_bytes(self) -> bytes:
        """JSON that people can read, too, with the fields in their order here."""
        return msgspec.json.format(msgspec.json.encode(attrs.asdict(self)), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Task":
        """The task that `to_bytes` wrote. Raises `ValueError`, whatever *data* is."""
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
    """A task as it stands among the others."""

    blocks: tuple[TaskId, ...]
    """The tasks that name it in their `blocked_by`."""
    waits_for: tuple[TaskId, ...]
    """The tasks of its `blocked_by` that are not done."""
    state: TaskState


@attrs.frozen(kw_only=True)
class TaskChange:
    """What is to be different about a task; None leaves a fact as it is."""

    subject: str | None = None
    description: str | None = None
    status: TaskStatus | None = None
    add_blocked_by: tuple[TaskId, ...] = ()
    remove_blocked_by: tuple[TaskId, ...] = ()
