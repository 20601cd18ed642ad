"""The ExitPlanMode and TaskStop tools."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.plan_approval import PlanApprover, PlanDecision
from coterie.agents.root_link.spawn_request import Spawner, SpawnRefused
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description

LONGEST_PLAN = 40_000
"""Characters, those of its files' names too: more than anybody judges, and few enough for a message."""
_APPROVERS: Mapping[str, str] = {"lead": "The lead", "human": "The user", "rule": "A rule"}


@attrs.frozen(kw_only=True)
class ExitPlanModeInput:
    """What is to be done."""

    plan: str = attrs.field(metadata=described("What you will do, step by step; whoever judges it reads nothing else."))
    files: list[str] = attrs.field(
        factory=list, metadata=described("Every file that the plan changes, relative to the project directory.")
    )


@attrs.frozen
class ExitPlanMode:
    """Submits the plans of one agent."""

    approver: PlanApprover

    name: ClassVar = "ExitPlanMode"
    description: ClassVar = tool_description("exit_plan_mode")
    input_type: ClassVar = ExitPlanModeInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, _arguments: ExitPlanModeInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file: a plan names them, and no more."""
        return ()

    async def run(self, arguments: ExitPlanModeInput, _workspace: Workspace) -> ToolResult:
        """What was decided over the plan, once it is. Cancellation withdraws it."""
        if not arguments.plan.strip():
            raise ToolFailed("The plan is empty. Say what you will do, step by step.")
        if (length := sum(map(len, (arguments.plan, *arguments.files)))) > LONGEST_PLAN:
            most = f"{LONGEST_PLAN:,} characters, its files included"
            raise ToolFailed(f"The plan has {length:,} of at most {most}. Shorten it, or plan a first part.")
        return ToolResult(text=_decision_text(await self.approver.submit(arguments.plan, arguments.files)))


def _decision_text(judgement: PlanDecision) -> str:
    lines = ["Your plan is approved: begin." if judgement.approve else "Your plan is not approved."]
    judge = _APPROVERS.get(judgement.by)
    if judge is not None:
        lines.append(f"{judge} says: {judgement.feedback}" if judgement.feedback else f"{judge} has decided.")
    elif judgement.feedback:
        lines.append(judgement.feedback)
    if not judgement.approve:
        lines.append("Plan again, and call ExitPlanMode with the new plan; until then only read.")
    return "\n".join(lines)


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

    def paths_affected(self, _arguments: TaskStopInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody's."""
        return ()

    async def run(self, arguments: TaskStopInput, _workspace: Workspace) -> ToolResult:
        """Return when nothing is left of it. Cancelled, it is stopped all the same."""
        try:
            await self.spawner.stop(arguments.name)
        except SpawnRefused as exc:
            raise ToolFailed(exc.reason) from exc
        return ToolResult(text=f"{arguments.name} is stopped, with all that it had started.")
