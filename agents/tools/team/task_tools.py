"""The TaskCreate, TaskList, TaskClaim and TaskUpdate tools, with which agents use the task list of the session."""

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
    """Context manager that converts a `TaskError` (error of the task list) raised in its block to a `ToolFailed`."""
    try:
        yield
    except TaskRefused as exc:
        raise ToolFailed(f"The task list was not changed: {exc}.") from exc
    except TaskError as exc:
        raise ToolFailed(f"The task list could not be used. Try again, or tell the user: {exc}.") from exc


def task_line(task: ListedTask) -> str:
    """Return one line for the model: number, state and subject of *task*, such as `3 [open] Fix the tests`."""
    if task.state == "blocked":
        state = f"blocked by {', '.join(map(str, task.waits_for))}"
    elif task.state == "in_progress":
        state = f"in_progress, {task.owner}"
    else:
        state = task.state
    return f"{task.id} [{state}] {task.subject}"


def task_text(task: ListedTask) -> str:
    """Return several lines for the model: state, dependencies and description of *task*, without its history."""
    related = (
        f"blocked by: {', '.join(map(str, task.blocked_by))}" if task.blocked_by else None,
        f"blocks: {', '.join(map(str, task.blocks))}" if task.blocks else None,
        task.description,
    )
    return "\n".join([task_line(task), *filter(None, related)])


@attrs.frozen
class _TaskTool(BuiltInTool):
    """Base class of the tools with which the agent *owner* uses *task_list*, the shared tasks of its session."""

    task_list: TaskList
    owner: TaskOwner


@attrs.frozen(kw_only=True)
class TaskClaimInput:
    """Arguments of a call of the TaskClaim tool, which assigns a task to the calling agent."""

    task_id: Annotated[int | None, "The number of the task; if omitted, the oldest task that can be started."] = None


@attrs.frozen
class TaskClaim(_TaskTool, name="TaskClaim", input_type=TaskClaimInput, access="session"):
    """Tool with which an agent makes itself the owner of a task in the task list, to work on it."""

    async def run(self, arguments: TaskClaimInput, _workspace: Workspace) -> ToolResult:
        """Claim the given task, or the oldest that can start, and return it. Raises `ToolFailed` if none is free."""
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
    """Arguments of a call of the TaskCreate tool, which adds a task to the task list."""

    subject: Annotated[str, "The task in one line."]
    description: Annotated[str, "Everything needed to do the task."] = ""
    blocked_by: Annotated[list[int], "Numbers of the tasks that must be done first."] = attrs.Factory(list)


@attrs.frozen
class TaskCreate(_TaskTool, name="TaskCreate", input_type=TaskCreateInput, access="session"):
    """Tool with which an agent adds a task to the task list of the session."""

    async def run(self, arguments: TaskCreateInput, _workspace: Workspace) -> ToolResult:
        """Create the task without an owner, and return its number. Raises `ToolFailed` if it is not valid."""
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
    """Arguments of a call of the TaskList tool, which shows the tasks of the session."""

    task_id: Annotated[int | None, "Show only this task, with its description; if omitted, all in the state."] = None
    state: Annotated[Literal["unfinished", "open", "blocked", "in_progress", "done"], "Show tasks in this state."] = (
        "unfinished"
    )


@attrs.frozen
class TaskListTool(_TaskTool, name="TaskList", input_type=TaskListInput, access="session", is_clearable=True):
    """Tool with which an agent views the tasks in the task list of the session."""

    async def run(self, arguments: TaskListInput, _workspace: Workspace) -> ToolResult:
        """Return a line for each task in the requested state, or all details of the one task that `task_id` names."""
        with translate_task_errors():
            if arguments.task_id is not None:
                return ToolResult(text=task_text(await self.task_list.get(TaskId(arguments.task_id))))
            states = UNFINISHED if arguments.state == "unfinished" else {arguments.state}
            found = await self.task_list.list(states=states)
        lines = [*map(task_line, found.tasks), *map(str, found.damaged)]
        return ToolResult(text="\n".join(lines) or f"There are no {arguments.state} tasks.")


@attrs.frozen(kw_only=True)
class TaskUpdateInput:
    """Arguments of a call of the TaskUpdate tool, which changes a task in the task list."""

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
    """Tool with which an agent changes a task: its status, texts or dependencies on other tasks."""

    check_completion: Callable[[ListedTask], Awaitable[str | None]] | None = None
    """Function called before a task is marked as done; returns a reason to refuse that, or None. None for no check."""

    async def run(self, arguments: TaskUpdateInput, _workspace: Workspace) -> ToolResult:
        """Change the task; return its new status. Raises `ToolFailed` and changes nothing if not allowed."""
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
                raise ToolFailed(f"The task is not done yet, so nothing was changed. Complete it first: {reason}")
            task = await self.task_list.update(task_id, self.owner, change)
        owner = f", {task.owner}" if task.owner else ""
        return ToolResult(text=f"Task {task.id} is now [{task.status}{owner}]: {task.subject}")


TASK_TOOLS = (TaskCreate.name, TaskListTool.name, TaskClaim.name, TaskUpdate.name)


def task_tools(task_list: TaskList, owner: TaskOwner) -> tuple[Tool, ...]:
    """Create the four task tools for the agent *owner*, in the order in which model requests list them."""
    return tuple(tool(task_list, owner) for tool in (TaskCreate, TaskListTool, TaskClaim, TaskUpdate))
