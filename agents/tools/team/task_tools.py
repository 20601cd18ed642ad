"""The TaskCreate, TaskList, TaskClaim and TaskUpdate tools."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, Tool, ToolResult, Workspace
from coterie.mailbox.tasks.errors import TaskError, TaskRefused
from coterie.mailbox.tasks.task import ListedTask, Task, TaskChange, TaskId, TaskOwner, TaskState, TaskStatus
from coterie.mailbox.tasks.task_list import TaskList

UNFINISHED: frozenset[TaskState] = frozenset({"open", "blocked", "in_progress"})


@contextmanager
def translate_task_errors() -> Iterator[None]:
    """Translate errors of the task list in this block to `ToolFailed`."""
    try:
        yield
    except TaskRefused as exc:
        raise ToolFailed(f"Nothing was changed: {exc}.") from exc
    except TaskError as exc:
        raise ToolFailed(f"The task list could not be used: {exc}.") from exc


def task_line(task: ListedTask) -> str:
    """Format a task as one line: id, state and subject."""
    if task.state == "blocked":
        state = f"blocked by {', '.join(map(str, task.waits_for))}"
    elif task.state == "in_progress":
        state = f"in_progress, {task.owner}"
    else:
        state = task.state
    return f"{task.id} [{state}] {task.subject}"


def task_text(task: ListedTask) -> str:
    """Format a task with its description and dependencies, but without its history."""
    related = (
        f"blocked by: {', '.join(map(str, task.blocked_by))}" if task.blocked_by else None,
        f"blocks: {', '.join(map(str, task.blocks))}" if task.blocks else None,
        task.description,
    )
    return "\n".join([task_line(task), *filter(None, related)])


@attrs.frozen
class _TaskTool(BuiltInTool):
    """Base class of the task tools of one agent."""

    task_list: TaskList
    owner: TaskOwner


@attrs.frozen(kw_only=True)
class TaskClaimInput:
    """Arguments of the TaskClaim tool."""

    task_id: Annotated[int | None, "The number of the task; if omitted, the oldest task that can be started."] = None


@attrs.frozen
class TaskClaim(_TaskTool, name="TaskClaim", input_type=TaskClaimInput, access="session"):
    """Tool that assigns a task to the agent."""

    async def run(self, arguments: TaskClaimInput, _workspace: Workspace) -> ToolResult:
        """Claim the task and return all its details."""
        with translate_task_errors():
            if arguments.task_id is not None:
                task: Task | None = await self.task_list.claim(TaskId(arguments.task_id), self.owner)
            else:
                task = await self.task_list.claim_next(self.owner)
            if task is None:
                raise ToolFailed("No task can be started now. TaskList shows which are blocked or in progress.")
            return ToolResult(text=task_text(await self.task_list.get(task.id)))


@attrs.frozen(kw_only=True)
class TaskCreateInput:
    """Arguments of the TaskCreate tool."""

    subject: Annotated[str, "The task in one line."]
    description: Annotated[str, "Everything needed to do the task."] = ""
    blocked_by: Annotated[list[int], "Numbers of the tasks that must be done first."] = attrs.Factory(list)


@attrs.frozen
class TaskCreate(_TaskTool, name="TaskCreate", input_type=TaskCreateInput, access="session"):
    """Tool that adds a task to the task list."""

    async def run(self, arguments: TaskCreateInput, _workspace: Workspace) -> ToolResult:
        """Create the task and return its number."""
        with translate_task_errors():
            task = await self.task_list.create(
                arguments.subject,
                by=self.owner,
                description=arguments.description,
                blocked_by=map(TaskId, arguments.blocked_by),
            )
        return ToolResult(text=f"Created task {task.id}: {task.subject}")


@attrs.frozen(kw_only=True)
class TaskListInput:
    """Arguments of the TaskList tool."""

    task_id: Annotated[int | None, "Show only this task, with its description; if omitted, all in the state."] = None
    state: Annotated[Literal["unfinished", "open", "blocked", "in_progress", "done"], "Show tasks in this state."] = (
        "unfinished"
    )


@attrs.frozen
class TaskListTool(_TaskTool, name="TaskList", input_type=TaskListInput, access="session", is_clearable=True):
    """Tool that shows tasks."""

    async def run(self, arguments: TaskListInput, _workspace: Workspace) -> ToolResult:
        """Return a line for each task, or all details of one task."""
        with translate_task_errors():
            if arguments.task_id is not None:
                return ToolResult(text=task_text(await self.task_list.get(TaskId(arguments.task_id))))
            states = UNFINISHED if arguments.state == "unfinished" else {arguments.state}
            found = await self.task_list.list(states=states)
        lines = [*map(task_line, found.tasks), *map(str, found.damaged)]
        return ToolResult(text="\n".join(lines) or f"There are no {arguments.state} tasks.")


@attrs.frozen(kw_only=True)
class TaskUpdateInput:
    """Arguments of the TaskUpdate tool."""

    task_id: Annotated[int, "The number of the task."]
    status: Annotated[TaskStatus | None, "done if all of it is done; open to give it back."] = None
    subject: Annotated[str | None, "New subject."] = None
    description: Annotated[str | None, "New description."] = None
    add_blocked_by: Annotated[list[int], "Numbers of further tasks that must be done first."] = attrs.Factory(list)
    remove_blocked_by: Annotated[list[int], "Numbers of tasks that need not be done first after all."] = attrs.Factory(
        list
    )


@attrs.frozen
class TaskUpdate(_TaskTool, name="TaskUpdate", input_type=TaskUpdateInput, access="session"):
    """Tool that changes a task."""

    check_completion: Callable[[ListedTask], Awaitable[str | None]] | None = None
    """Returns the reason for the model why a task is not really done, or None; None to accept every task."""

    async def run(self, arguments: TaskUpdateInput, _workspace: Workspace) -> ToolResult:
        """Change the task and return its new state."""
        change = TaskChange(
            subject=arguments.subject,
            description=arguments.description,
            status=arguments.status,
            add_blocked_by=tuple(map(TaskId, arguments.add_blocked_by)),
            remove_blocked_by=tuple(map(TaskId, arguments.remove_blocked_by)),
        )
        if change == TaskChange():
            raise ToolFailed("Nothing was changed: give at least one field to change, such as the status.")
        task_id = TaskId(arguments.task_id)
        with translate_task_errors():
            check = self.check_completion if change.status == "done" else None
            if check is not None and (reason := await check(await self.task_list.get(task_id))):
                raise ToolFailed(f"The task is not done, so nothing was changed: {reason}")
            task = await self.task_list.update(task_id, self.owner, change)
        owner = f", {task.owner}" if task.owner else ""
        return ToolResult(text=f"Task {task.id} is now [{task.status}{owner}]: {task.subject}")


TASK_TOOLS = (TaskCreate.name, TaskListTool.name, TaskClaim.name, TaskUpdate.name)


def task_tools(task_list: TaskList, owner: TaskOwner) -> tuple[Tool, ...]:
    """Build the task tools for the agent *owner*, in the order of a request's tools."""
    return tuple(tool(task_list, owner) for tool in (TaskCreate, TaskListTool, TaskClaim, TaskUpdate))
