"""The TaskList tool: what there is to do, and who does it."""

from pathlib import Path
from typing import ClassVar, Literal

import attrs

from coterie.agents.tools.schema import described
from coterie.agents.tools.tasks.wording import failures_for_the_model, line, whole
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.mailbox import tasks

UNFINISHED: frozenset[tasks.State] = frozenset({"open", "blocked", "in_progress"})


@attrs.frozen(kw_only=True)
class TaskListInput:
    """Which tasks."""

    task_id: int | None = attrs.field(
        default=None, metadata=described("One task, with its description; all of the state if left out.")
    )
    state: Literal["unfinished", "open", "blocked", "in_progress", "done"] = attrs.field(
        default="unfinished", metadata=described("Show tasks in this state.")
    )


@attrs.frozen
class TaskList:
    """Shows tasks."""

    task_list: tasks.TaskList
    owner: tasks.Owner

    name: ClassVar = "TaskList"
    description: ClassVar = tool_description("task_list")
    input_type: ClassVar = TaskListInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: TaskListInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskListInput, _workspace: Workspace) -> ToolResult:
        """A line for each task, or one task whole."""
        with failures_for_the_model():
            if arguments.task_id is not None:
                return ToolResult(text=whole(await self.task_list.get(tasks.TaskId(arguments.task_id))))
            states = UNFINISHED if arguments.state == "unfinished" else {arguments.state}
            found = await self.task_list.list(states=states)
        lines = [*map(line, found.tasks), *map(str, found.damaged)]
        return ToolResult(text="\n".join(lines) or f"There are no {arguments.state} tasks.")
