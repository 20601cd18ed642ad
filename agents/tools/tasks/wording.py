"""Tasks, and what is wrong with a call, in words for the model."""

from collections.abc import Iterator
from contextlib import contextmanager

from coterie.agents.errors import ToolFailed
from coterie.mailbox.tasks import ListedTask, Task
from coterie.mailbox.tasks.errors import TaskError, TaskRefused


@contextmanager
def failures_for_the_model() -> Iterator[None]:
    """Turn what the task list raises in this block into `ToolFailed`."""
    try:
        yield
    except TaskRefused as exc:
        raise ToolFailed(f"Nothing was changed: {exc}.") from exc
    except TaskError as exc:
        raise ToolFailed(f"The task list could not be used: {exc}.") from exc


def line(task: ListedTask) -> str:
    """A task in a list."""
    if task.state == "blocked":
        state = f"blocked by {', '.join(map(str, task.waits_for))}"
    elif task.state == "in_progress":
        state = f"in_progress, {task.owner}"
    else:
        state = task.state
    return f"{task.id} [{state}] {task.subject}"


def whole(task: ListedTask) -> str:
    """All about a task but its history."""
    related = (
        f"blocked by: {', '.join(map(str, task.blocked_by))}" if task.blocked_by else None,
        f"blocks: {', '.join(map(str, task.blocks))}" if task.blocks else None,
        task.description,
    )
    return "\n".join([line(task), *filter(None, related)])


def outcome(task: Task) -> str:
    """What a change has led to."""
    owner = f", {task.owner}" if task.owner else ""
    return f"Task {task.id} is now [{task.status}{owner}]: {task.subject}"
