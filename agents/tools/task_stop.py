"""The TaskStop tool: an agent that was started is not needed any more."""

from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.spawning import Spawner, SpawnRefused
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description


@attrs.frozen(kw_only=True)
class TaskStopInput:
    """Whose task."""

    name: str = attrs.field(metadata=described("The name of an agent that you started, or that it started."))


@attrs.frozen
class TaskStop:
    """Stops what one agent has started."""

    spawner: Spawner

    name: ClassVar = "TaskStop"
    description: ClassVar = tool_description("task_stop")
    input_type: ClassVar = TaskStopInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: TaskStopInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskStopInput, _workspace: Workspace) -> ToolResult:
        """Return when nothing is left of it. Cancelled, it is stopped all the same."""
        try:
            await self.spawner.stop(arguments.name)
        except SpawnRefused as exc:
            raise ToolFailed(exc.reason) from exc
        return ToolResult(text=f"{arguments.name} is stopped, with all that it had started.")
