"""Tests of the tools of a team, called like a model calls them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import MODES, Allowed, Mode
from coterie.agents.root_link.spawn_request import SpawnRefused
from coterie.agents.tools.schema import input_schema, parse_input
from coterie.agents.tools.search.search_transcript import SearchTranscript
from coterie.agents.tools.team.control_tools import MAX_PLAN_LENGTH, ExitPlanMode, TaskStop, TaskStopInput
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import task_tools
from coterie.agents.tools.tool import Tool, Workspace
from coterie.clock import Clock
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.scenarios.api_server.rules.schema import check_schema
from tests.agents.tools.tool_calls import call, refusal
from tests.mailbox.test_router import RouterHarness, sender

AGAIN = "Revise the plan and call ExitPlanMode again; until then only read."


@pytest.fixture
def tasks(tmp_path: Path) -> TaskList:
    return TaskList(tmp_path / "tasks", Clock())


@attrs.frozen
class Caller:
    """The task tools of one agent."""

    tasks: TaskList
    name: str

    def _tool(self, name: str) -> tuple[Tool, Workspace]:
        tools = task_tools(self.tasks, TaskOwner(name=self.name, incarnation=1))
        directory = self.tasks.directory.parent
        return next(tool for tool in tools if tool.name == name), Workspace(root=directory, scratch=directory)

    async def __call__(self, name: str, **value: Any) -> str:
        result = await call(*self._tool(name), **value)
        assert not result.is_error, result.text
        return result.text

    async def refused(self, name: str, **value: Any) -> str:
        return await refusal(*self._tool(name), **value)


async def test_two_agents_complete_dependent_tasks(tasks: TaskList) -> None:
    ann, bob = Caller(tasks, "ann"), Caller(tasks, "bob")
    assert await ann("TaskList") == "There are no unfinished tasks."
    assert await ann("TaskCreate", subject="Write it", description="In a.py.") == "Created task 1: Write it"
    assert await ann("TaskCreate", subject="Test it", blocked_by=[1]) == "Created task 2: Test it"
    assert await bob("TaskClaim") == "1 [in_progress, bob#1] Write it\nblocks: 2\nIn a.py."
    assert await ann("TaskList") == "1 [in_progress, bob#1] Write it\n2 [blocked by 1] Test it"
    assert await bob("TaskUpdate", task_id=1, status="done") == "Task 1 is now [done, bob#1]: Write it"
    assert await ann("TaskList", task_id=2) == "2 [open] Test it\nblocked by: 1"
    assert await ann("TaskClaim", task_id=2) == "2 [in_progress, ann#1] Test it\nblocked by: 1"
    assert await ann("TaskUpdate", task_id=2, status="open") == "Task 2 is now [open]: Test it"
    assert await ann("TaskUpdate", task_id=2, status="deleted") == "Task 2 is now [deleted]: Test it"
    assert await ann("TaskList", state="done") == "1 [done] Write it"


async def test_refusal_and_damage_are_named_with_the_reason(tasks: TaskList) -> None:
    ann, bob = Caller(tasks, "ann"), Caller(tasks, "bob")
    await ann("TaskCreate", subject="one")
    await ann("TaskCreate", subject="two", blocked_by=[1])
    await ann("TaskClaim", task_id=1)
    owned = "The task list was not changed: task 1 is in progress; its owner is ann#1."
    assert await bob.refused("TaskClaim", task_id=1) == owned
    assert await bob.refused("TaskUpdate", task_id=1, status="done") == owned
    blocked = "The task list was not changed: task 2 is blocked: it waits for task 1."
    assert await bob.refused("TaskClaim", task_id=2) == blocked
    nothing = "No task can be started now. TaskList shows which are blocked or in progress."
    assert await bob.refused("TaskClaim") == nothing
    circle = "The task list was not changed: tasks would wait for each other: 1 -> 2 -> 1."
    assert await bob.refused("TaskUpdate", task_id=1, add_blocked_by=[2]) == circle
    unknown = "The task list was not changed: there is no task 9; the highest number is 2."
    assert await bob.refused("TaskClaim", task_id=9) == unknown
    assert "give at least one field" in await bob.refused("TaskUpdate", task_id=1)
    assert "the subject cannot be used: a task cannot have an empty subject" in await bob.refused(
        "TaskCreate", subject=" "
    )
    (tasks.directory / "000001.json").write_bytes(b"{")
    assert "000001.json: cannot be read as a task" in await ann("TaskList")
    assert (await ann.refused("TaskClaim", task_id=1)).startswith("The task list could not be used. ")


@attrs.define(eq=False)
class FixedReviewer:
    """Approver that gives every plan the same decision."""

    judgement: PlanDecision
    plans: list[tuple[str, list[str]]] = attrs.field(factory=list)

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        self.plans.append((plan, list(files)))
        return self.judgement


YES = PlanDecision(approve=True, by="lead")


BEGIN, NOT_YET = "Your plan is approved: begin.", "Your plan is not approved."


@pytest.mark.parametrize(
    ("by", "approve", "feedback", "lines"),
    [
        ("lead", True, "", [BEGIN, "The lead has decided."]),
        ("rule", True, "", [BEGIN, "A rule has decided."]),
        ("human", False, "Tests?", [NOT_YET, "The user says: Tests?", AGAIN]),
        ("root", False, "The plan was not submitted.", [NOT_YET, "The plan was not submitted.", AGAIN]),
        ("root", False, "", [NOT_YET, AGAIN]),
    ],
)
async def test_result_names_approver_and_next_step(
    by: Any, approve: bool, feedback: str, lines: list[str], workspace: Workspace
) -> None:
    reviewer = FixedReviewer(PlanDecision(approve=approve, by=by, feedback=feedback))
    result = await call(ExitPlanMode(reviewer), workspace, plan="1. Look.", files=["a.py"])
    assert (result.text.splitlines(), result.is_error) == (lines, False)
    assert reviewer.plans == [("1. Look.", ["a.py"])]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"plan": " \n\t"}, "The plan is empty."),
        ({"plan": "x" * (MAX_PLAN_LENGTH + 1)}, "The plan has 40,001 characters; the limit is 40,000"),
        ({"plan": "x", "files": ["y" * 400] * 100}, "The plan has 40,001 characters; the limit is 40,000"),
    ],
    ids=["empty", "too long", "too many files"],
)
async def test_invalid_plan_is_not_submitted(arguments: dict[str, Any], reason: str, workspace: Workspace) -> None:
    reviewer = FixedReviewer(YES)
    assert reason in await refusal(ExitPlanMode(reviewer), workspace, **arguments)
    assert reviewer.plans == []


async def test_result_has_receipts_and_object_is_sent_with_its_type_and_references(workspace: Workspace) -> None:
    mail = RouterHarness()
    tool = SendMessage(router=mail.router, sender=sender())
    result = await call(tool, workspace, to="scout", message="Look.", summary="a look")
    [envelope] = await mail.received("scout")
    assert result.text == f"Stored for scout as {envelope.id}"
    assert (envelope.body, envelope.summary, envelope.kind) == ("Look.", "a look", "message")
    broadcast = await call(tool, workspace, to="*", message="Stop.")
    assert broadcast.text.startswith("Stored for scout as ")
    assert "; Stored for worker as " in broadcast.text
    for unknown in ({}, {"type": "task_assignmnt"}, {"type": "message"}, {"type": 3}):
        assert "is not a known `type`" in await refusal(tool, workspace, to="scout", message=unknown)
    for message in (
        {"type": "task_assignment", "task_id": 7},
        {"type": "plan_approval_response", "request_id": "r1", "approve": True},
    ):
        assert not (await call(tool, workspace, to="scout", message=message)).is_error
    *_, assigned, answer = await mail.received("scout")
    assert (assigned.kind, json.loads(assigned.body)) == ("task_assignment", {"task_id": 7})
    assert answer.in_reply_to == "r1"


class Parent:
    """Spawner with one started agent."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    async def stop(self, name: str) -> None:
        if name != "scout":
            raise SpawnRefused(f"You have no agent {name!r} at work that could be stopped: there is scout")
        self.stopped.append(name)


async def test_started_agent_is_stopped_but_unknown_name_is_tool_error(workspace: Workspace) -> None:
    parent = Parent()
    tool = TaskStop(parent)  # type: ignore[arg-type]  # the tool calls nothing else of a spawner
    with pytest.raises(ToolFailed, match="no agent 'main' at work that could be stopped: there is scout"):
        await tool.run(TaskStopInput(name="main"), workspace)
    assert parent.stopped == []
    result = await tool.run(TaskStopInput(name="scout"), workspace)
    assert (parent.stopped, result.text) == (["scout"], "scout is stopped, with all agents that it had started.")


ARGUMENTS: dict[str, dict[str, Any]] = {
    "TaskCreate": {"subject": "x"},
    "TaskUpdate": {"task_id": 1},
    "SendMessage": {"to": "scout", "message": "x"},
    "ExitPlanMode": {"plan": "x"},
    "TaskStop": {"name": "scout"},
    "SearchTranscript": {"pattern": "x"},
}


@pytest.mark.parametrize("mode", MODES)
def test_tools_that_affect_only_the_session_are_allowed_in_every_mode(
    tasks: TaskList, mode: Mode, workspace: Workspace
) -> None:
    """The API accepts their schemas for strict tools too."""
    tools: list[Tool] = [
        *task_tools(tasks, TaskOwner(name="ann", incarnation=1)),
        SendMessage(router=RouterHarness().router, sender=sender()),
        ExitPlanMode(FixedReviewer(YES)),
        TaskStop(Parent()),  # type: ignore[arg-type]  # the tool is not called
        SearchTranscript(path=workspace.scratch / "transcript.jsonl"),
    ]
    for tool in tools:
        if tool.name != "SendMessage":  # it takes any object, so it cannot be strict
            check_schema(input_schema(tool.input_type), tool.name)
        arguments = parse_input(tool.input_type, ARGUMENTS.get(tool.name, {}))
        assert Permissions(mode=mode).evaluate(tool, arguments, workspace) == Allowed()
