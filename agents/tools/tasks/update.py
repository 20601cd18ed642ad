"""The TaskUpdate tool: how a task stands, what it is, and what it waits for."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tasks.wording import failures_for_the_model, outcome
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.mailbox import tasks


@attrs.frozen(kw_only=True)
class TaskUpdateInput:
    """What is to be different."""

    task_id: int = attrs.field(metadata=described("The number of the task."))
    status: tasks.Status | None = attrs.field(
        default=None, metadata=described("done when all of it is done; open to give it back.")
    )
    subject: str | None = attrs.field(default=None, metadata=described("Takes the place of the subject."))
    description: str | None = attrs.field(default=None, metadata=described("Takes the place of the description."))
    add_blocked_by: list[int] = attrs.field(
        factory=list, metadata=described("Numbers of more tasks that must be done before.")
    )
    remove_blocked_by: list[int] = attrs.field(
        factory=list, metadata=described("Numbers of tasks it need not wait for any more.")
    )


Completing = Callable[[tasks.ListedTask], Awaitable[str | None]]
"""Says why a task is not done although its owner says so, in words for the model; None if it is."""


async def believe(_task: tasks.ListedTask) -> None:
    """The `Completing` of an agent that is taken at its word."""


@attrs.frozen
class TaskUpdate:
    """Changes a task."""

    task_list: tasks.TaskList
    owner: tasks.Owner
    completing: Completing = believe

    name: ClassVar = "TaskUpdate"
    description: ClassVar = tool_description("task_update")
    input_type: ClassVar = TaskUpdateInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: TaskUpdateInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskUpdateInput, _workspace: Workspace) -> ToolResult:
        """How the task stands now."""
        change = tasks.Change(
            subject=arguments.subject,
            description=arguments.description,
            status=arguments.status,
            add_blocked_by=tuple(map(tasks.TaskId, arguments.add_blocked_by)),
            remove_blocked_by=tuple(map(tasks.TaskId, arguments.remove_blocked_by)),
        )
        if change == tasks.Change():
            raise ToolFailed("Nothing was changed: say what is to be different, such as the status.")
        task_id = tasks.TaskId(arguments.task_id)
        with failures_for_the_model():
            if change.status == "done":
                await self._check(task_id)
            return ToolResult(text=outcome(await self.task_list.update(task_id, self.owner, change)))

    async def _check(self, task_id: tasks.TaskId) -> None:
        if reason := await self.completing(await self.task_list.get(task_id)):
            raise ToolFailed(f"The task is not done, and nothing was changed: {reason}")
