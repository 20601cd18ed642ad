"""Prompts, grants and reported decisions of the authorizer, and permissions before and after a plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.errors import ControlLost, ToolFailed
from coterie.agents.events.agent_events import PermissionDecided
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.plan_approval import PlanDecision, PlanPolicy
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Mode, Question
from coterie.agents.runtime.plan_mode import PlanMode
from coterie.agents.tools.files.edit import Edit, EditInput
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Tool, Workspace
from coterie.errors import ConfigInvalid

PUSH = Rule.parse("Bash(git push:*)", "test")


@attrs.define(eq=False)
class ScriptedAsker:
    """User whose answers are given in order, each when the test releases it; fails on concurrent prompts."""

    answers: list[Answer]
    is_open: trio.Event = attrs.field(factory=trio.Event)
    questions: list[Question] = attrs.field(factory=list)
    is_busy: bool = False

    async def ask(self, question: Question) -> Answer:
        assert not self.is_busy
        self.is_busy = True
        self.questions.append(question)
        try:
            await self.is_open.wait()
        finally:
            self.is_busy = False
        return self.answers.pop(0)


def _asker(*answers: Answer) -> ScriptedAsker:
    asker = ScriptedAsker(list(answers))
    asker.is_open.set()
    return asker


async def _denial(authority: Authorizer, workspace: Workspace, command: str = "git push") -> str | None:
    return await authority.denial(Bash(), BashInput(command=command), workspace)


async def test_allow_for_session_applies_to_all_calls_of_the_rule(workspace: Workspace) -> None:
    asker = _asker(AllowForSession(), DenyCall(), DenyCall("use a branch"))
    authority = Authorizer(Permissions(), asker)
    assert await _denial(authority, workspace) is None
    assert authority.granted == [PUSH]
    assert await _denial(authority, workspace, "git push -f") is None
    assert await _denial(authority, workspace, "git pull") == "The user refused this call."
    assert await _denial(authority, workspace, "git pull") == "The user refused this call: use a branch"
    assert [question.subject for question in asker.questions] == ["git push", "git pull", "git pull"]


async def test_allow_once_and_allow_for_an_unclear_command_apply_to_one_call(workspace: Workspace) -> None:
    asker = _asker(AllowOnce(), AllowForSession(), AllowOnce(), AllowForSession())
    authority = Authorizer(Permissions(), asker)
    for command in ("git push", "ls $(pwd)", "git push", "ls $(pwd)"):
        assert await _denial(authority, workspace, command) is None
    assert authority.granted == []
    assert len(asker.questions) == 4


async def test_one_prompt_is_open_at_a_time_and_skipped_if_an_answer_covers_it(workspace: Workspace) -> None:
    asker = ScriptedAsker([AllowForSession(), AllowOnce(), AllowOnce()])
    authority = Authorizer(Permissions(), asker)
    denials: list[str | None] = []

    async def call(command: str) -> None:
        denials.append(await _denial(authority, workspace, command))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "git push")
        await trio.testing.wait_all_tasks_blocked()
        for command in ("git push", "git push -f", "make", "ls"):
            nursery.start_soon(call, command)
        await trio.testing.wait_all_tasks_blocked()
        assert len(asker.questions) == 1
        assert await authority.denial(Read(), ReadInput(file_path="a"), workspace) is None
        asker.is_open.set()
    assert denials == [None] * 5
    assert [question.subject for question in asker.questions[:1]] == ["git push"]
    assert len(asker.questions) == 3
    assert authority.granted == [PUSH]


async def test_cancelled_prompt_grants_nothing_and_the_next_one_opens(workspace: Workspace) -> None:
    asker = ScriptedAsker([AllowForSession()])
    authority = Authorizer(Permissions(), asker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_denial, authority, workspace)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert authority.granted == []
    asker.is_open.set()
    assert await _denial(authority, workspace) is None
    assert len(asker.questions) == 2


async def test_decision_is_reported_unless_the_mode_simply_allows(workspace: Workspace) -> None:
    told: list[PermissionDecided] = []
    limit = RoleLimit(name="helper", reason="none of that", denied=frozenset({"Read"}))
    authority = Authorizer(
        Permissions(allow=(Rule.parse("Bash(ls:*)", "test"),), deny=(Rule.parse("Bash(rm:*)", "test"),)),
        _asker(AllowOnce(), DenyCall("no")),
        told.append,
    )
    for command in ("ls", "rm x", "make", "make"):
        await _denial(authority, workspace, command)
    await authority.denial(Read(), ReadInput(file_path="a"), workspace)
    authority.permissions = Permissions(limits=(limit,))
    await authority.denial(Read(), ReadInput(file_path="a"), workspace)
    assert [(decision.tool, decision.verdict, decision.by) for decision in told] == [
        ("Bash", "allowed", "Bash(ls:*)"),
        ("Bash", "denied", "Bash(rm:*)"),
        ("Bash", "asked", "default"),
        ("Bash", "allowed", "user"),
        ("Bash", "asked", "default"),
        ("Bash", "denied", "user"),
        ("Read", "denied", "helper"),
    ]
    assert told[-1].reason == "none of that"
    authority.permissions = Permissions(mode="bypassPermissions")
    assert await _denial(authority, workspace, "rm x") is None


YES, NO = PlanDecision(approve=True, by="lead"), PlanDecision(approve=False, by="lead", feedback="No.")
BY_LEAD, BY_RULE = PlanPolicy(by="lead"), PlanPolicy(by="rule", paths=("tests/**", "docs/*.md"))
CALLS: dict[str, tuple[Tool, Any]] = {
    "read": (Read(), ReadInput(file_path="a.py")),
    "write": (Write(), WriteInput(file_path="a.py", content="x")),
    "edit": (Edit(), EditInput(file_path="a.py", old_string="x", new_string="y")),
    "run": (Bash(), BashInput(command="ls")),
}


@attrs.define(eq=False)
class Agent:
    """An agent in plan mode, in a directory, with scripted decisions on its plans."""

    directory: Path
    policy: PlanPolicy | None
    decisions: list[PlanDecision | ControlLost] = attrs.field(factory=list)
    is_approved: bool = False
    mode: Mode = "bypassPermissions"
    plans: list[tuple[str, tuple[str, ...]]] = attrs.field(factory=list)
    did: list[str] = attrs.field(factory=list)
    authority: Authorizer = attrs.field(init=False)
    planning: PlanMode = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        (self.directory / "a.py").write_text("x")
        self.authority = Authorizer(Permissions(mode=self.mode))
        self.planning = PlanMode(
            policy=self.policy,
            is_approved=self.is_approved,
            authority=self.authority,
            approver=self,
            report_activity=lambda activity, what: self.did.append(f"{activity} {what}".strip()),
        )

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        self.plans.append((plan, tuple(files)))
        decision = self.decisions.pop(0)
        if isinstance(decision, ControlLost):
            raise decision
        return decision

    async def may(self) -> set[str]:
        """Return the names of the allowed calls."""
        return {name for name, call in CALLS.items() if await self.denial(*call) is None}

    async def denial(self, tool: Tool, arguments: Any) -> str | None:
        return await self.authority.denial(tool, arguments, Workspace(root=self.directory, scratch=self.directory))

    async def denial_of_write(self, path: str) -> str | None:
        return await self.denial(Write(), WriteInput(file_path=path, content="x"))


async def test_agent_may_only_read_until_its_plan_is_approved(tmp_path: Path) -> None:
    agent = Agent(tmp_path, BY_LEAD, [NO, YES])
    assert await agent.may() == {"read"}
    assert (await agent.planning.submit("1. A.\n2. B.", ["a.py"])) == NO
    assert await agent.may() == {"read"}
    assert (await agent.planning.submit("1. C.", [])) == YES
    assert await agent.may() == set(CALLS)
    assert agent.plans == [("1. A.\n2. B.", ("a.py",)), ("1. C.", ())]
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
    assert resumed.plans == []


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
