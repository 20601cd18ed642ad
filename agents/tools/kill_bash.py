"""The KillBash tool: the end of a command in the background."""

from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.tools.jobs import find_job
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description


@attrs.frozen(kw_only=True)
class KillBashInput:
    """Which job."""

    bash_id: str = attrs.field(metadata=described("The job, as Bash named it when it was started."))


class KillBash:
    """Ends a job. Whoever was allowed to start it may end it, so a call needs no more than one that reads."""

    name: ClassVar = "KillBash"
    description: ClassVar = tool_description("kill_bash")
    input_type: ClassVar = KillBashInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: KillBashInput, _workspace: Workspace) -> list[Path]:
        """Nothing."""
        return []

    async def run(self, arguments: KillBashInput, workspace: Workspace) -> ToolResult:
        """What has become of the job; it and all it started have ended. A cancelled call ends it nevertheless."""
        job = find_job(workspace.jobs, arguments.bash_id)
        already = "already " if not job.is_running else ""
        await job.end()
        job.is_known_ended = True
        return ToolResult(text=f"{job.id}: {already}{job.status}")
