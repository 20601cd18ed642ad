"""The TaskClaim tool: a task for the agent that asks, and for no other."""

from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tasks.wording import failures_for_the_model, whole
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.mailbox import tasks


@attrs.frozen(kw_only=True)
class TaskClaimInput:
    """Which task."""

    task_id: int | None = attrs.field(
        default=None, metadata=described("The number of the task; the oldest that can be begun if left out.")
    )


@attrs.frozen
class TaskClaim:
    """Makes a task the agent's own work."""

    task_list: tasks.TaskList
    owner: tasks.Owner

    name: ClassVar = "TaskClaim"
    description: ClassVar = tool_description("task_claim")
    input_type: ClassVar = TaskClaimInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: TaskClaimInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskClaimInput, _workspace: Workspace) -> ToolResult:
        """The task whole."""
        with failures_for_the_model():
            task = await self._claim(arguments.task_id)
            return ToolResult(text=whole(await self.task_list.get(task.id)))

    async def _claim(self, task_id: int | None) -> tasks.Task:
        if task_id is not None:
            return await self.task_list.claim(tasks.TaskId(task_id), self.owner)
        task = await self.task_list.claim_next(self.owner)
        if task is None:
            raise ToolFailed("There is no task that can be begun now. TaskList shows which are blocked or in progress.")
        return task
