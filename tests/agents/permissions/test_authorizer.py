"""The authorizer opens one prompt at a time, keeps grants in memory and reports its decisions."""

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.events.agent_events import PermissionDecided
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Workspace, call_tool

PUSH = Rule.parse("Bash(git push:*)", "test")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, scratch=tmp_path / "scratch")


@attrs.define(eq=False)
class ScriptedAsker:
    """User whose answers are given in order, each when the test releases it; fails on concurrent prompts."""

    answers: list[Answer]
    is_open: trio.Event = attrs.field(factory=trio.Event)
    questions: list[Question] = attrs.field(factory=list)
    is_busy: bool = False

    async def ask(self, question: Question) -> Answer:
        """Wait for the release, and return the next answer."""
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


async def test_allow_once_applies_to_one_call(workspace: Workspace) -> None:
    asker = _asker(AllowOnce(), AllowOnce())
    authority = Authorizer(Permissions(), asker)
    assert await _denial(authority, workspace) is None
    assert await _denial(authority, workspace) is None
    assert len(asker.questions) == 2
    assert authority.granted == []


async def test_allow_for_session_applies_to_all_calls_of_the_rule(workspace: Workspace) -> None:
    asker = _asker(AllowForSession(), DenyCall())
    authority = Authorizer(Permissions(), asker)
    assert await _denial(authority, workspace) is None
    assert authority.granted == [PUSH]
    assert await _denial(authority, workspace, "git push -f") is None
    assert await _denial(authority, workspace, "git pull") == "The user refused this call."
    assert [question.subject for question in asker.questions] == ["git push", "git pull"]


async def test_a_refusal_carries_its_reason_to_the_model(workspace: Workspace) -> None:
    authority = Authorizer(Permissions(), _asker(DenyCall("use a branch")))
    result = await call_tool({"Bash": Bash()}, "Bash", {"command": "git push"}, workspace, authority.denial)
    assert result.is_error
    assert result.text == "The user refused this call: use a branch"


async def test_unclear_command_can_only_be_allowed_once(workspace: Workspace) -> None:
    asker = _asker(AllowForSession(), AllowForSession())
    authority = Authorizer(Permissions(), asker)
    for _ in range(2):
        assert await _denial(authority, workspace, "ls $(pwd)") is None
    assert authority.granted == []
    assert len(asker.questions) == 2


async def test_denial_names_the_rule_to_add_without_a_user(workspace: Workspace) -> None:
    reason = await _denial(Authorizer(Permissions()), workspace)
    assert reason is not None
    assert "the rule Bash(git push:*)" in reason


async def test_ask_rule_allowed_for_session_asks_no_more_for_that_call(workspace: Workspace) -> None:
    asker = _asker(AllowForSession(), DenyCall())
    authority = Authorizer(Permissions(ask=(PUSH,)), asker)
    assert await _denial(authority, workspace, "git push a") is None
    assert await _denial(authority, workspace, "git push a") is None
    assert await _denial(authority, workspace, "git push b") is not None


async def test_prompt_is_skipped_when_an_earlier_answer_covers_it(workspace: Workspace) -> None:
    asker = ScriptedAsker([AllowForSession()])
    authority = Authorizer(Permissions(), asker)
    denials: list[str | None] = []

    async def call() -> None:
        denials.append(await _denial(authority, workspace))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        asker.is_open.set()
    assert denials == [None] * 5
    assert len(asker.questions) == 1
    assert authority.granted == [PUSH]


async def test_only_one_prompt_is_open_at_a_time(workspace: Workspace) -> None:
    asker = ScriptedAsker([AllowOnce(), AllowOnce(), AllowOnce()])
    authority = Authorizer(Permissions(), asker)
    async with trio.open_nursery() as nursery:
        for command in ("git push", "make", "ls"):
            nursery.start_soon(_denial, authority, workspace, command)
        await trio.testing.wait_all_tasks_blocked()
        assert len(asker.questions) == 1
        assert await authority.denial(Read(), ReadInput(file_path="a"), workspace) is None
        asker.is_open.set()
    assert len(asker.questions) == 3


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


async def test_replaced_permissions_apply_to_the_next_call(workspace: Workspace) -> None:
    authority = Authorizer(Permissions(mode="plan"))
    assert await _denial(authority, workspace) is not None
    authority.permissions = Permissions(mode="bypassPermissions")
    assert await _denial(authority, workspace) is None


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
