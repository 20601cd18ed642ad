"""Tests of the task tools, called like a model calls them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.types import MODES, Allowed
from coterie.agents.tools.schema import input_schema, parse_input
from coterie.agents.tools.team.task_tools import task_tools
from coterie.agents.tools.tool import Tool, ToolResult, Workspace, call_tool
from coterie.clock import Clock
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.scenarios.api_server.rules.schema import check_schema

ANN = TaskOwner(name="ann", incarnation=1)
BOB = TaskOwner(name="bob", incarnation=1)


@pytest.fixture
def tasks(tmp_path: Path) -> TaskList:
    return TaskList(tmp_path / "tasks", Clock())


@attrs.frozen
class Caller:
    """The task tools of one agent."""

    tools: Mapping[str, Tool]
    workspace: Workspace

    async def __call__(self, name: str, **value: Any) -> str:
        """Return the result of a successful call."""
        result = await self.call(name, value)
        assert not result.is_error, result.text
        return result.text

    async def refused(self, name: str, **value: Any) -> str:
        """Return the error of a failed call."""
        result = await self.call(name, value)
        assert result.is_error, result.text
        return result.text

    async def call(self, name: str, value: Mapping[str, Any]) -> ToolResult:
        """Return the result or error of a call."""
        return await call_tool(self.tools, name, value, self.workspace)


def caller(tasks: TaskList, owner: TaskOwner) -> Caller:
    workspace = Workspace(root=tasks.directory.parent, scratch=tasks.directory.parent)
    return Caller({tool.name: tool for tool in task_tools(tasks, owner)}, workspace)


async def test_two_agents_complete_dependent_tasks(tasks: TaskList) -> None:
    ann, bob = caller(tasks, ANN), caller(tasks, BOB)
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


async def test_refusal_names_the_reason(tasks: TaskList) -> None:
    ann, bob = caller(tasks, ANN), caller(tasks, BOB)
    await ann("TaskCreate", subject="one")
    await ann("TaskCreate", subject="two", blocked_by=[1])
    await ann("TaskClaim", task_id=1)
    owned = "Nothing was changed: task 1 is in progress; its owner is ann#1."
    assert await bob.refused("TaskClaim", task_id=1) == owned
    assert await bob.refused("TaskUpdate", task_id=1, status="done") == owned
    blocked = "Nothing was changed: task 2 is blocked: it waits for task 1."
    assert await bob.refused("TaskClaim", task_id=2) == blocked
    nothing = "No task can be started now. TaskList shows which are blocked or in progress."
    assert await bob.refused("TaskClaim") == nothing
    circle = "Nothing was changed: tasks would wait for each other: 1 -> 2 -> 1."
    assert await bob.refused("TaskUpdate", task_id=1, add_blocked_by=[2]) == circle
    unknown = "Nothing was changed: there is no task 9; the highest number is 2."
    assert await bob.refused("TaskClaim", task_id=9) == unknown
    assert "give at least one field" in await bob.refused("TaskUpdate", task_id=1)
    assert "the subject cannot be used: it is empty" in await bob.refused("TaskCreate", subject=" ")


async def test_damaged_task_file_is_reported_and_others_listed(tasks: TaskList) -> None:
    ann = caller(tasks, ANN)
    await ann("TaskCreate", subject="one")
    await ann("TaskCreate", subject="two")
    (tasks.directory / "000001.json").write_bytes(b"{")
    listed = await ann("TaskList")
    assert listed.startswith("2 [open] two\n")
    assert "000001.json: cannot be read as a task" in listed
    assert (await ann.refused("TaskClaim", task_id=1)).startswith("The task list could not be used: ")


@pytest.mark.parametrize("mode", MODES)
def test_task_tools_are_allowed_in_every_mode_unless_denied(tasks: TaskList, mode: Any) -> None:
    """They affect only the session, so no permission is requested; a rule can still deny them."""
    ann = caller(tasks, ANN)
    values: dict[str, dict[str, Any]] = {"TaskCreate": {"subject": "x"}, "TaskUpdate": {"task_id": 1}}
    for name, tool in ann.tools.items():
        arguments = parse_input(tool.input_type, values.get(name, {}))
        assert Permissions(mode=mode).evaluate(tool, arguments, ann.workspace) == Allowed()


def test_api_accepts_task_tool_schemas(tasks: TaskList) -> None:
    for tool in task_tools(tasks, ANN):
        check_schema(input_schema(tool.input_type), tool.name)
        assert tool.description
