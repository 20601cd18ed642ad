"""The TaskCreate tool: work for whoever has time for it."""

from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.tools.schema import described
from coterie.agents.tools.tasks.wording import failures_for_the_model
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.mailbox import tasks


@attrs.frozen(kw_only=True)
class TaskCreateInput:
    """What is to be done, and after what."""

    subject: str = attrs.field(metadata=described("What is to be done, in one line."))
    description: str = attrs.field(default="", metadata=described("All that one needs to know to do it."))
    blocked_by: list[int] = attrs.field(
        factory=list, metadata=described("Numbers of the tasks that must be done before.")
    )


@attrs.frozen
class TaskCreate:
    """Puts a task on the list."""

    task_list: tasks.TaskList
    owner: tasks.Owner

    name: ClassVar = "TaskCreate"
    description: ClassVar = tool_description("task_create")
    input_type: ClassVar = TaskCreateInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: TaskCreateInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskCreateInput, _workspace: Workspace) -> ToolResult:
        """The number of the task."""
        with failures_for_the_model():
            task = await self.task_list.create(
                arguments.subject,
                by=self.owner,
                description=arguments.description,
                blocked_by=map(tasks.TaskId, arguments.blocked_by),
            )
        return ToolResult(text=f"Created task {task.id}: {task.subject}")
