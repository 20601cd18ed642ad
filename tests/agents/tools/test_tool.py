"""Tests of tool calls, tool definitions and the workspace."""

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
    """Arguments of the tool."""

    number: int
    by: int


class Divide(Tool):
    """Tool that divides, with a bug for zero."""

    name: ClassVar = "Divide"
    description: ClassVar = "Divides a number."
    input_type: ClassVar = DivideInput
    access: ClassVar[Access] = "read"

    async def run(self, arguments: DivideInput, _workspace: Workspace) -> ToolResult:
        """Return the quotient if it is an integer."""
        if arguments.number % arguments.by:
            raise ToolFailed(f"{arguments.by} is no divisor")
        return ToolResult(text=str(arguments.number // arguments.by))


TOOLS: Mapping[str, Tool] = {"Divide": Divide()}


async def _call(workspace: Workspace, name: str, **value: Any) -> ToolResult:
    return await call_tool(TOOLS, name, value, workspace)


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("Divide", {"number": 6, "by": 3}, ToolResult(text="2")),
        ("Divide", {"number": 6, "by": 4}, ToolResult(text="4 is no divisor", is_error=True)),
        ("divde", {}, ToolResult(text="There is no tool 'divde': did you mean Divide?", is_error=True)),
    ],
    ids=["result", "failure", "unknown tool"],
)
async def test_call_returns_result_or_error(
    workspace: Workspace, name: str, value: dict[str, int], result: ToolResult
) -> None:
    assert await _call(workspace, name, **value) == result


async def test_invalid_input_is_refused_without_running_tool(workspace: Workspace) -> None:
    result = await _call(workspace, "Divide", number=6, bye=0)
    assert result.is_error
    assert "unknown field 'bye': did you mean by?" in result.text


async def test_bug_propagates(workspace: Workspace) -> None:
    with pytest.raises(ZeroDivisionError):
        await _call(workspace, "Divide", number=6, by=0)


async def test_denied_call_returns_reason_without_running_tool(workspace: Workspace) -> None:
    async def deny(tool: Tool, arguments: Any, workspace: Workspace) -> str:
        return f"{tool.name} by {arguments.by} is denied"

    result = await call_tool(TOOLS, "Divide", {"number": 6, "by": 0}, workspace, deny)
    assert result == ToolResult(text="Divide by 0 is denied", is_error=True)


@pytest.mark.parametrize("tool", BUILT_IN, ids=lambda tool: tool.name)
def test_definition_is_accepted_by_api_and_stable(tool: Tool) -> None:
    encoded = tool_definition(tool)
    decoded = msgspec.json.decode(encoded)
    assert list(decoded) == ["name", "description", "input_schema"]
    assert decoded["input_schema"] == input_schema(tool.input_type)
    assert encoded == tool_definition(tool)
    check_schema(decoded["input_schema"], "input_schema")


@pytest.mark.parametrize("path", ["a\0b", chr(0xD800), chr(0xDC80), "loop"])
def test_invalid_path_is_refused_with_encodable_text(path: str, workspace: Workspace) -> None:
    (workspace.root / "loop").symlink_to("loop")
    with pytest.raises(ToolFailed, match="not a valid path") as caught:
        workspace.locate(path)
    assert msgspec.json.encode(caught.value.reason)


def test_path_is_located_behind_links(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (workspace.root / "link").symlink_to(outside)
    assert workspace.locate("link/../x") == outside.parent / "x"


def test_tool_order_is_fixed() -> None:
    names = [tool.name for tool in BUILT_IN]
    assert names == ["Read", "Write", "Edit", "NotebookEdit", "Grep", "Glob", "Bash", "BashOutput", "KillBash"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}


@pytest.mark.parametrize(
    ("result", "content", "flag"),
    [
        (ToolResult(text="done"), {"type": "text", "text": "done"}, {}),
        (ToolResult(text=""), {"type": "text", "text": "(no output)"}, {}),
        (ToolResult(text="", images=(Image(media_type="image/png", data="QUJD"),)), IMAGE, {}),
        (ToolResult(text="no", is_error=True), {"type": "text", "text": "no"}, {"is_error": True}),
    ],
    ids=["text", "nothing", "image", "error"],
)
def test_result_block_is_accepted_by_api(result: ToolResult, content: dict[str, Any], flag: dict[str, bool]) -> None:
    block = msgspec.json.decode(result.block("toolu_1"))
    assert block == {"type": "tool_result", "tool_use_id": "toolu_1", "content": [content], **flag}


def test_workspace_changes_are_taken_once_and_can_be_restored(workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    assert workspace.changes() is None
    workspace.seen.record(Path("/a"), b"one")
    workspace.shell.update_directory(workspace.root / "sub")
    change = workspace.changes()
    assert change is not None
    assert (list(change.seen), change.directory) == (["/a"], "sub")
    assert workspace.changes() is None
    resumed = Workspace(root=workspace.root, scratch=workspace.scratch)
    resumed.restore(msgspec.json.decode(msgspec.json.encode(change), type=WorkspaceChange))
    resumed.seen.check(Path("/a"), b"one")
    assert resumed.shell.directory == workspace.root / "sub"
    assert resumed.changes() is None


def test_tool_names_for_rules_match_tools() -> None:
    built_in = tuple(tool.name for tool in BUILT_IN)
    team = (SendMessage.name, *TASK_TOOLS, AgentTool.name, TaskStop.name, ExitPlanMode.name)
    assert (*built_in, SearchTranscript.name, *team, SkillTool.name, WebFetch.name) == TOOL_NAMES


@pytest.mark.slow
def test_tools_import_without_sdk() -> None:
    code = "import sys, coterie.agents.runtime.setup.built_in_tools; sys.exit('anthropic' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
