"""Calls are answered; what goes wrong is an answer the model can use, unless it is a bug."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import msgspec
import pytest

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.name_patterns import TOOL_NAMES
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN
from coterie.agents.tools.schema import input_schema
from coterie.agents.tools.search.search_transcript import SearchTranscript
from coterie.agents.tools.skills.load_skill import SkillTool
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.agents.tools.team.control_tools import ExitPlanMode, TaskStop
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import TASK_TOOLS
from coterie.agents.tools.tool import (
    RESULT_CAP,
    Access,
    Image,
    Tool,
    ToolResult,
    Workspace,
    WorkspaceChange,
    call_tool,
    tool_definition,
)
from coterie.agents.tools.web.web_fetch import WebFetch
from coterie.scenarios.api_server.rules.schema import check_schema


@attrs.frozen(kw_only=True)
class DivideInput:
    """Two numbers."""

    number: int
    by: int


class Divide:
    """Divides, and has a bug for zero."""

    name: ClassVar = "Divide"
    description: ClassVar = "Divides a number."
    input_type: ClassVar = DivideInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, _arguments: DivideInput, _workspace: Workspace) -> list[Path]:
        """Nothing."""
        return []

    async def run(self, arguments: DivideInput, _workspace: Workspace) -> ToolResult:
        """The quotient, if it is whole."""
        if arguments.number % arguments.by:
            raise ToolFailed(f"{arguments.by} is no divisor")
        return ToolResult(text=str(arguments.number // arguments.by))


TOOLS: Mapping[str, Tool] = {"Divide": Divide()}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, scratch=tmp_path)


async def _call(workspace: Workspace, name: str, **value: Any) -> ToolResult:
    return await call_tool(TOOLS, name, value, workspace)


async def test_a_call_gets_the_tools_result(workspace: Workspace) -> None:
    assert await _call(workspace, "Divide", number=6, by=3) == ToolResult(text="2")


async def test_an_unknown_tool_is_answered_with_the_nearest(workspace: Workspace) -> None:
    result = await _call(workspace, "divde")
    assert result == ToolResult(text="There is no tool 'divde': did you mean Divide?", is_error=True)


async def test_wrong_input_is_answered_and_the_tool_not_run(workspace: Workspace) -> None:
    result = await _call(workspace, "Divide", number=6, bye=0)
    assert result.is_error
    assert "unknown field 'bye': did you mean by?" in result.text


async def test_a_failed_tool_is_answered_with_its_reason(workspace: Workspace) -> None:
    assert await _call(workspace, "Divide", number=6, by=4) == ToolResult(text="4 is no divisor", is_error=True)


async def test_a_bug_is_not_an_answer(workspace: Workspace) -> None:
    with pytest.raises(ZeroDivisionError):
        await _call(workspace, "Divide", number=6, by=0)


async def test_a_denied_call_is_answered_with_the_reason_and_not_run(workspace: Workspace) -> None:
    async def deny(tool: Tool, arguments: Any, workspace: Workspace) -> str:
        return f"{tool.name} by {arguments.by} is denied"

    result = await call_tool(TOOLS, "Divide", {"number": 6, "by": 0}, workspace, deny)
    assert result == ToolResult(text="Divide by 0 is denied", is_error=True)


@pytest.mark.parametrize("tool", BUILT_IN, ids=lambda tool: tool.name)
def test_a_definition_is_what_the_api_takes_and_the_same_bytes_each_time(tool: Tool) -> None:
    encoded = tool_definition(tool)
    decoded = msgspec.json.decode(encoded)
    assert list(decoded) == ["name", "description", "input_schema"]
    assert decoded["input_schema"] == input_schema(tool.input_type)
    assert encoded == tool_definition(tool)
    check_schema(decoded["input_schema"], "input_schema")


@pytest.mark.parametrize("path", ["a\0b", chr(0xD800), chr(0xDC80)])
def test_what_cannot_be_a_path_is_refused_in_words_that_can_be_sent(path: str, workspace: Workspace) -> None:
    with pytest.raises(ToolFailed) as caught:
        workspace.locate(path)
    assert msgspec.json.encode(caught.value.reason)


def test_links_in_a_circle_are_no_path(workspace: Workspace) -> None:
    (workspace.root / "a").symlink_to("b")
    (workspace.root / "b").symlink_to("a")
    with pytest.raises(ToolFailed, match="not a valid path"):
        workspace.locate("a")


def test_a_path_is_located_behind_its_links(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (workspace.root / "link").symlink_to(outside)
    assert workspace.locate("link/../x") == outside.parent / "x"


def test_the_tools_stand_in_the_order_of_every_prefix() -> None:
    names = [tool.name for tool in BUILT_IN]
    assert names == ["Read", "Write", "Edit", "NotebookEdit", "Grep", "Glob", "Bash", "BashOutput", "KillBash"]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult(text="done"), [{"type": "text", "text": "done"}]),
        (ToolResult(text=""), [{"type": "text", "text": "(no output)"}]),
        (
            ToolResult(text="", images=(Image(media_type="image/png", data="QUJD"),)),
            [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}],
        ),
    ],
)
def test_a_result_is_a_block_that_the_api_takes(result: ToolResult, content: list[dict[str, Any]]) -> None:
    block = msgspec.json.decode(result.block("toolu_1"))
    assert block == {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}


def test_only_an_error_says_whether_it_is_one() -> None:
    assert msgspec.json.decode(ToolResult(text="no", is_error=True).block("toolu_1"))["is_error"] is True


def test_a_workspace_says_what_has_changed_once(workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    assert workspace.changes() is None
    workspace.seen.record(Path("/a"), b"one")
    workspace.shell.update_directory(workspace.root / "sub")
    change = workspace.changes()
    assert change is not None
    assert list(change.seen) == ["/a"]
    assert change.directory == "sub"
    assert workspace.changes() is None


def test_a_change_is_taken_over_as_it_was_recorded(workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    workspace.seen.record(Path("/a"), b"one")
    workspace.shell.update_directory(workspace.root / "sub")
    recorded = msgspec.json.encode(workspace.changes())
    resumed = Workspace(root=workspace.root, scratch=workspace.scratch)
    resumed.restore(msgspec.json.decode(recorded, type=WorkspaceChange))
    resumed.seen.check(Path("/a"), b"one")
    assert resumed.shell.directory == workspace.root / "sub"
    assert resumed.changes() is None


def test_the_names_written_out_for_rules_are_those_of_the_tools() -> None:
    built_in = tuple(tool.name for tool in BUILT_IN)
    team = (SendMessage.name, *TASK_TOOLS, AgentTool.name, TaskStop.name, ExitPlanMode.name)
    assert (*built_in, SearchTranscript.name, *team, SkillTool.name, WebFetch.name) == TOOL_NAMES


@pytest.mark.slow
def test_the_tools_come_without_the_sdk() -> None:
    code = "import sys, coterie.agents.runtime.setup.built_in_tools; sys.exit('anthropic' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
