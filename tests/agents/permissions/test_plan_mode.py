"""Permissions of an agent before and after the approval of its plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.errors import ControlLost, ToolFailed
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.plan_approval import PlanDecision, PlanPolicy
from coterie.agents.permissions.types import Mode
from coterie.agents.runtime.plan_mode import PlanMode
from coterie.agents.tools.files.edit import Edit, EditInput
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Tool, Workspace
from coterie.errors import ConfigInvalid

YES, NO = PlanDecision(approve=True, by="lead"), PlanDecision(approve=False, by="lead", feedback="No.")
BY_LEAD, BY_RULE = PlanPolicy(by="lead"), PlanPolicy(by="rule", paths=("tests/**", "docs/*.md"))
CALLS: dict[str, tuple[Tool, Any]] = {
    "read": (Read(), ReadInput(file_path="a.py")),
    "write": (Write(), WriteInput(file_path="a.py", content="x")),
    "edit": (Edit(), EditInput(file_path="a.py", old_string="x", new_string="y")),
    "run": (Bash(), BashInput(command="ls")),
}


@attrs.define(eq=False)
class ScriptedReviewer:
    """Plan approver with scripted decisions."""

    judgements: list[PlanDecision | ControlLost]
    plans: list[tuple[str, tuple[str, ...]]] = attrs.field(factory=list)

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Return the next scripted decision; as `PlanApprover.submit`."""
        self.plans.append((plan, tuple(files)))
        judgement = self.judgements.pop(0)
        if isinstance(judgement, ControlLost):
            raise judgement
        return judgement


@attrs.define(eq=False)
class Agent:
    """An agent in plan mode, in a directory."""

    directory: Path
    policy: PlanPolicy | None
    judgements: list[PlanDecision | ControlLost] = attrs.field(factory=list)
    is_approved: bool = False
    mode: Mode = "bypassPermissions"
    did: list[str] = attrs.field(factory=list)
    authority: Authorizer = attrs.field(init=False)
    planning: PlanMode = attrs.field(init=False)
    court: ScriptedReviewer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        (self.directory / "a.py").write_text("x")
        self.authority = Authorizer(Permissions(mode=self.mode))
        self.court = ScriptedReviewer(self.judgements)
        self.planning = PlanMode(
            policy=self.policy,
            is_approved=self.is_approved,
            authority=self.authority,
            approver=self.court,
            report_activity=lambda activity, what: self.did.append(f"{activity} {what}".strip()),
        )

    async def may(self) -> set[str]:
        """Return the names of the allowed calls."""
        return {name for name, call in CALLS.items() if await self.denial(*call) is None}

    async def denial(self, tool: Tool, arguments: Any) -> str | None:
        """Return the reason for a denial."""
        return await self.authority.denial(tool, arguments, Workspace(root=self.directory, scratch=self.directory))

    async def denial_of_write(self, path: str) -> str | None:
        """Return the reason why a write is denied."""
        return await self.denial(Write(), WriteInput(file_path=path, content="x"))


async def test_agent_may_only_read_until_its_plan_is_approved(tmp_path: Path) -> None:
    agent = Agent(tmp_path, BY_LEAD, [NO, YES])
    assert await agent.may() == {"read"}
    assert (await agent.planning.submit("1. A.\n2. B.", ["a.py"])) == NO
    assert await agent.may() == {"read"}
    assert (await agent.planning.submit("1. C.", [])) == YES
    assert await agent.may() == set(CALLS)
    assert agent.court.plans == [("1. A.\n2. B.", ("a.py",)), ("1. C.", ())]
    assert agent.did == ["plan_pending 1. A.", "running", "plan_pending 1. C.", "running"]


async def test_approval_restores_the_agents_own_permissions_and_a_lost_approver_nothing(tmp_path: Path) -> None:
    agent = Agent(tmp_path, BY_LEAD, [ControlLost("the root has gone"), YES], mode="acceptEdits")
    with pytest.raises(ControlLost):
        await agent.planning.submit("1.", [])
    assert await agent.may() == {"read"}
    await agent.planning.submit("1.", [])
    assert await agent.may() == {"read", "write", "edit"}
    resumed = Agent(tmp_path, BY_LEAD, is_approved=True)
    assert await resumed.may() == set(CALLS)
    assert (await resumed.planning.submit("1.", [])).approve
    assert resumed.court.plans == []


async def test_agent_without_a_plan_policy_is_unrestricted(tmp_path: Path) -> None:
    agent = Agent(tmp_path, None)
    assert await agent.may() == set(CALLS)
    with pytest.raises(ToolFailed, match="No plan was requested"):
        await agent.planning.submit("1.", [])
    assert agent.did == []


@pytest.mark.parametrize("is_approved", [False, True], ids=["by a yes", "before a crash"])
async def test_rule_approval_allows_changes_only_of_its_paths(tmp_path: Path, is_approved: bool) -> None:
    agent = Agent(tmp_path, BY_RULE, [PlanDecision(approve=True, by="rule")], is_approved=is_approved)
    if not is_approved:
        assert await agent.denial_of_write("tests/test_a.py") is not None
        await agent.planning.submit("1.", ["tests/test_a.py"])
    for path in ("tests", "src"):
        (tmp_path / path).mkdir()
    (tmp_path / "tests" / "link").symlink_to(tmp_path / "src")
    assert await agent.may() == {"read"}
    for path in ("tests/test_a.py", "tests/deep/x", "docs/a.md", "src/../tests/x", f"{tmp_path}/tests/x"):
        assert await agent.denial_of_write(path) is None, path
    for path in ("a.py", "tests/../a.py", "tests/link/a.py", "docs/a.txt", "/etc/x", f"{tmp_path}/a.py"):
        reason = "The rule that approved your plan lets you change only tests/**, docs/*.md, and run no command."
        assert await agent.denial_of_write(path) == reason
    with pytest.raises(ConfigInvalid, match="the rule over plans"):
        Agent(tmp_path, PlanPolicy(by="rule", paths=("../x",)))
