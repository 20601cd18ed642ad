"""The ExitPlanMode tool: a plan for somebody else to approve, and the word to begin."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import attrs

from coterie.agents.approvals.judgement import Judge, Judgement
from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description

LONGEST_PLAN = 40_000
"""Characters, those of its files' names too: more than anybody judges, and few enough for a message."""
_JUDGES: Mapping[str, str] = {"lead": "The lead", "human": "The user", "rule": "A rule"}


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

    judge: Judge

    name: ClassVar = "ExitPlanMode"
    description: ClassVar = tool_description("exit_plan_mode")
    input_type: ClassVar = ExitPlanModeInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def touches(self, _arguments: ExitPlanModeInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file: a plan names them, and no more."""
        return ()

    async def run(self, arguments: ExitPlanModeInput, _workspace: Workspace) -> ToolResult:
        """What was decided over the plan, once it is. Cancellation withdraws it."""
        if not arguments.plan.strip():
            raise ToolFailed("The plan is empty. Say what you will do, step by step.")
        if (length := sum(map(len, (arguments.plan, *arguments.files)))) > LONGEST_PLAN:
            most = f"{LONGEST_PLAN:,} characters, its files included"
            raise ToolFailed(f"The plan has {length:,} of at most {most}. Shorten it, or plan a first part.")
        return ToolResult(text=_words(await self.judge.submit(arguments.plan, arguments.files)))


def _words(judgement: Judgement) -> str:
    lines = ["Your plan is approved: begin." if judgement.approve else "Your plan is not approved."]
    judge = _JUDGES.get(judgement.by)
    if judge is not None:
        lines.append(f"{judge} says: {judgement.feedback}" if judgement.feedback else f"{judge} has decided.")
    elif judgement.feedback:
        lines.append(judgement.feedback)
    if not judgement.approve:
        lines.append("Plan again, and call ExitPlanMode with the new plan; until then only read.")
    return "\n".join(lines)
