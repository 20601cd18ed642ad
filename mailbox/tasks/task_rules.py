"""Rules for changing tasks: the changes that are allowed, the agents that may make them, and the resulting tasks."""

from collections.abc import Iterable

from coterie.mailbox.address import MAIN
from coterie.mailbox.tasks.errors import (
    DependencyCycle,
    TaskBlocked,
    TaskDeleted,
    TaskDone,
    TaskInvalid,
    TaskListFull,
    TaskOwned,
)
from coterie.mailbox.tasks.task import (
    LONGEST_DESCRIPTION,
    LONGEST_SUBJECT,
    USER,
    Task,
    TaskChange,
    TaskHistoryEntry,
    TaskId,
    TaskOwner,
    TaskStatus,
)
from coterie.mailbox.tasks.task_files import LIMIT
from coterie.mailbox.tasks.task_graph import TaskGraph


def new_task(
    graph: TaskGraph, at: float, by: TaskOwner, *, subject: str, description: str, blocked_by: Iterable[TaskId]
) -> Task:
    """Return a new task with the next number, to be stored by the caller.

    Raises `TaskRefused`, and `TaskDamaged` if a task in *blocked_by* cannot be read.
    """
    highest = graph.files.highest()
    if highest >= LIMIT:
        raise TaskListFull(LIMIT)
    blockers = tuple(dict.fromkeys(blocked_by))
    for other in blockers:
        _check_not_deleted(graph.task(other))
    return Task(
        id=TaskId(highest + 1),
        subject=_checked_subject(subject),
        description=_checked("description", description, LONGEST_DESCRIPTION),
        blocked_by=blockers,
        history=(TaskHistoryEntry(at=at, by=str(by), what="created"),),
        created=at,
        updated=at,
    )


def claim_task(graph: TaskGraph, task: Task, at: float, owner: TaskOwner) -> Task:
    """Return *task* in progress with *owner* as its owner; the same object if *owner* already has the task.

    Raises `TaskDeleted`, `TaskDone`, `TaskOwned` and `TaskBlocked`.
    """
    _check_not_deleted(task)
    if task.status == "done":
        raise TaskDone(task.id, task.owner)
    if task.owner == owner:
        return task
    if task.owner is not None:
        raise TaskOwned(task.id, task.owner)
    _check_not_blocked(graph, task)
    return task.with_change(at, owner, "claimed", status="in_progress", owner=owner)


def update_task(graph: TaskGraph, task: Task, at: float, by: TaskOwner, change: TaskChange) -> Task:
    """Return *task* after *change* by *by*; the same object if nothing changes. Raises `TaskRefused`, `TaskDamaged`.

    The new status is checked last, so that one change can remove a dependency and finish the task.
    """
    _check_not_deleted(task)
    facts: dict[str, object] = {}
    if change.subject is not None:
        facts["subject"] = _checked_subject(change.subject)
    if change.description is not None:
        facts["description"] = _checked("description", change.description, LONGEST_DESCRIPTION)
    facts = {name: value for name, value in facts.items() if value != getattr(task, name)}
    notes = [f"{name} changed" for name in facts]
    blockers = _blockers(graph, task, change)
    if blockers != task.blocked_by:
        facts["blocked_by"] = blockers
        notes.append(f"blocked by {', '.join(map(str, blockers)) or 'nothing'}")
    after = task.with_change(at, by, "; ".join(notes), **facts) if notes else task
    return after if change.status is None else _with_status(graph, after, at, by, change.status)


def make_tombstone(task_id: TaskId, at: float, by: TaskOwner, reason: str) -> Task:
    """Return a deleted task to replace the unreadable file of task *task_id*, so that the number is not reused."""
    entry = TaskHistoryEntry(at=at, by=str(by), what=f"deleted; its file could not be read: {reason}")
    subject = "(its file could not be read)"
    return Task(id=task_id, subject=subject, status="deleted", history=(entry,), created=at, updated=at)


def _blockers(graph: TaskGraph, task: Task, change: TaskChange) -> tuple[TaskId, ...]:
    kept = [other for other in task.blocked_by if other not in change.remove_blocked_by]
    for other in change.add_blocked_by:
        if other in kept:
            continue
        _check_not_deleted(graph.task(other))
        if path := graph.find_cycle(task.id, other):
            raise DependencyCycle(path)
        kept.append(other)
    return tuple(kept)


def _with_status(graph: TaskGraph, task: Task, at: float, by: TaskOwner, status: TaskStatus) -> Task:
    if status == "in_progress":
        return claim_task(graph, task, at, by)
    if status == task.status:
        return task
    # Only the owner of a running task, the lead and the user may change its status.
    if task.status == "in_progress" and task.owner not in (None, by) and by != USER and by.name != MAIN:
        assert task.owner is not None
        raise TaskOwned(task.id, task.owner)
    if status == "open":
        return task.with_change(at, by, "reopened" if task.status == "done" else "released", status="open", owner=None)
    if status == "deleted":
        return task.with_change(at, by, "deleted", status="deleted", owner=None)
    _check_not_blocked(graph, task)
    return task.with_change(at, by, "done", status="done", owner=task.owner or by)


def _check_not_deleted(task: Task) -> None:
    if task.status == "deleted":
        raise TaskDeleted(task.id, task.history[-1].by if task.history else "an unknown agent")


def _check_not_blocked(graph: TaskGraph, task: Task) -> None:
    if waits_for := graph.waits_for(task):
        raise TaskBlocked(task.id, waits_for)


def _checked_subject(text: str) -> str:
    subject = " ".join(text.split())
    if not subject:
        raise TaskInvalid("subject", "a task cannot have an empty subject; describe the work in a few words")
    return _checked("subject", subject, LONGEST_SUBJECT)


def _checked(field: str, text: str, longest: int) -> str:
    if len(text) > longest:
        raise TaskInvalid(field, f"the text has {len(text):,} characters; shorten it to {longest:,}")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise TaskInvalid(field, f"the text is not valid Unicode; remove character {exc.start + 1:,}") from exc
    return text
