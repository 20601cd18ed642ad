"""Tests of the ExitPlanMode tool: submitted plans, and its results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import MODES, Allowed, Mode
from coterie.agents.tools.team.control_tools import MAX_PLAN_LENGTH, ExitPlanMode, ExitPlanModeInput
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool

AGAIN = "Revise the plan and call ExitPlanMode again; until then only read."


@attrs.define(eq=False)
class FixedReviewer:
    """Approver that gives every plan the same decision."""

    judgement: PlanDecision
    plans: list[tuple[str, list[str]]] = attrs.field(factory=list)

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Record the plan; see `PlanApprover.submit`."""
        self.plans.append((plan, list(files)))
        return self.judgement


async def call(reviewer: FixedReviewer, directory: Path, **arguments: Any) -> ToolResult:
    tool = ExitPlanMode(reviewer)
    return await call_tool({tool.name: tool}, tool.name, arguments, Workspace(root=directory, scratch=directory))


@pytest.mark.parametrize(
    ("decision", "lines"),
    [
        (PlanDecision(approve=True, by="lead"), ["Your plan is approved: begin.", "The lead has decided."]),
        (PlanDecision(approve=True, by="rule"), ["Your plan is approved: begin.", "A rule has decided."]),
        (
            PlanDecision(approve=False, by="human", feedback="Tests?"),
            ["Your plan is not approved.", "The user says: Tests?", AGAIN],
        ),
        (
            PlanDecision(approve=False, by="root", feedback="The plan was not submitted."),
            ["Your plan is not approved.", "The plan was not submitted.", AGAIN],
        ),
        (PlanDecision(approve=False, by="root"), ["Your plan is not approved.", AGAIN]),
    ],
)
async def test_result_names_approver_and_next_step(tmp_path: Path, decision: PlanDecision, lines: list[str]) -> None:
    reviewer = FixedReviewer(decision)
    result = await call(reviewer, tmp_path, plan="1. Look.", files=["a.py"])
    assert (result.text.splitlines(), result.is_error) == (lines, False)
    assert reviewer.plans == [("1. Look.", ["a.py"])]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"plan": " \n\t"}, "The plan is empty."),
        ({"plan": "x" * (MAX_PLAN_LENGTH + 1)}, "The plan has 40,001 characters; the limit is 40,000"),
        ({"plan": "x", "files": ["y" * 400] * 100}, "The plan has 40,001 characters; the limit is 40,000"),
        ({}, "plan"),
        ({"plan": "x", "files": "a.py"}, "files"),
    ],
    ids=["empty", "too long", "too many files", "no plan", "files that are no list"],
)
async def test_invalid_plan_is_not_submitted(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    reviewer = FixedReviewer(PlanDecision(approve=True, by="lead"))
    result = await call(reviewer, tmp_path, **arguments)
    assert result.is_error
    assert reason in result.text
    assert reviewer.plans == []


@pytest.mark.parametrize("mode", MODES)
def test_plan_submission_is_allowed_in_every_mode(workspace: Workspace, mode: Mode) -> None:
    tool = ExitPlanMode(FixedReviewer(PlanDecision(approve=True, by="lead")))
    assert isinstance(Permissions(mode=mode).evaluate(tool, ExitPlanModeInput(plan="x"), workspace), Allowed)
