"""The tools ExitPlanMode, which submits a plan for approval, and TaskStop, which stops another agent."""

from collections.abc import Mapping
from typing import Annotated

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.plan_approval import PlanApprover, PlanDecision
from coterie.agents.root_link.spawn_request import Spawner, SpawnRefused
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace

MAX_PLAN_LENGTH = 40_000
"""Maximum total characters of a plan's text and of the names of the files that it will change."""
_APPROVERS: Mapping[str, str] = {"lead": "The lead", "human": "The user", "rule": "A rule"}


@attrs.frozen(kw_only=True)
class ExitPlanModeInput:
    """Arguments of a call of the ExitPlanMode tool, which submits a plan for approval."""

    plan: Annotated[str, "What you will do, step by step; the reviewer sees only this text."]
    files: Annotated[list[str], "Every file that the plan changes, relative to the project directory."] = attrs.Factory(
        list
    )


@attrs.frozen
class ExitPlanMode(BuiltInTool, name="ExitPlanMode", input_type=ExitPlanModeInput, access="session"):
    """Tool with which an agent submits its plan; until the plan is approved, the agent may only read."""

    approver: PlanApprover

    async def run(self, arguments: ExitPlanModeInput, _workspace: Workspace) -> ToolResult:
        """Submit the plan, wait for its approval or rejection, and return that. Cancellation withdraws the plan."""
        if not arguments.plan.strip():
            raise ToolFailed("The plan is empty. Describe what you will do, step by step.")
        if (length := sum(map(len, (arguments.plan, *arguments.files)))) > MAX_PLAN_LENGTH:
            limit = f"{MAX_PLAN_LENGTH:,}, including the file names"
            raise ToolFailed(f"The plan has {length:,} characters; the limit is {limit}. Shorten it, or plan a part.")
        return ToolResult(text=_decision_text(await self.approver.submit(arguments.plan, arguments.files)))


def _decision_text(decision: PlanDecision) -> str:
    lines = ["Your plan is approved: begin." if decision.approve else "Your plan is not approved."]
    approver = _APPROVERS.get(decision.by)
    if approver is not None:
        lines.append(f"{approver} says: {decision.feedback}" if decision.feedback else f"{approver} has decided.")
    elif decision.feedback:
        lines.append(decision.feedback)
    if not decision.approve:
        lines.append("Revise the plan and call ExitPlanMode again; until then only read.")
    return "\n".join(lines)


@attrs.frozen(kw_only=True)
class TaskStopInput:
    """Arguments of a call of the TaskStop tool, which stops an agent."""

    name: Annotated[str, "The name of an agent that you or one of your agents started."]


@attrs.frozen
class TaskStop(BuiltInTool, name="TaskStop", input_type=TaskStopInput, access="session"):
    """Tool with which an agent stops another agent that it, or one of its descendants, has started."""

    spawner: Spawner

    async def run(self, arguments: TaskStopInput, _workspace: Workspace) -> ToolResult:
        """Stop the agent and all agents below it; return when they have ended. Cancellation does not undo the stop."""
        try:
            await self.spawner.stop(arguments.name)
        except SpawnRefused as exc:
            raise ToolFailed(exc.reason) from exc
        return ToolResult(text=f"{arguments.name} is stopped, with all agents that it had started.")
