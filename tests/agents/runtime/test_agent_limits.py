"""Limits of an agent on tools and MCP servers, by its type and its place in the team."""

from pathlib import Path

import msgspec
import pytest

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.permissions.rules import RoleLimit
from coterie.agents.runtime.setup.agent_config import TEAM_TOOLS, effective_permissions, server_limits, tools_allowed_by
from coterie.agents.settings import Settings

pytestmark = pytest.mark.usefixtures("home")


def limit_of(kind: str, project: Path, *, is_teammate: bool) -> RoleLimit:
    [limit] = effective_permissions(Settings(), load_definitions(project).get(kind), is_teammate=is_teammate).limits
    return limit


@pytest.mark.parametrize("kind", ["explore", "plan", "verifier"])
def test_teammate_may_send_mail_and_use_tasks_with_every_agent_type(kind: str, tmp_path: Path) -> None:
    alone = limit_of(kind, tmp_path, is_teammate=False).allowed
    in_team = limit_of(kind, tmp_path, is_teammate=True).allowed
    assert alone is not None
    assert alone.isdisjoint(TEAM_TOOLS)
    assert in_team == alone | set(TEAM_TOOLS)


@pytest.mark.parametrize(
    ("disallowed", "denied"),
    [("SendMessage", {"SendMessage"}), ("Write, Edit", {"Write", "Edit", "NotebookEdit"})],
)
def test_tool_denied_by_the_definition_stays_denied(disallowed: str, denied: set[str], tmp_path: Path) -> None:
    """A definition that denies Edit also denies NotebookEdit."""
    definitions = tmp_path / ".coterie" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "a.md").write_text(f"---\nname: a\ndescription: d\ndisallowedTools: {disallowed}\n---\nGo.\n")
    assert limit_of("a", tmp_path, is_teammate=True).denied == denied


def test_coordinator_may_only_delegate(tmp_path: Path) -> None:
    allowed = limit_of("coordinator", tmp_path, is_teammate=False).allowed
    assert allowed == frozenset({"Agent", "TaskStop", "SearchTranscript", "ExitPlanMode", *TEAM_TOOLS})


def listed(server: str, kinds: list[str] | None = None) -> ListedTool:
    schema = msgspec.Raw(b'{"type":"object"}')
    return ListedTool(name=f"mcp__{server}__x", server=server, tool="x", description="", schema=schema, kinds=kinds)


TOOLS = (listed("a"), listed("b"), listed("own", ["prober"]))


def kind(**facts: object) -> AgentDefinition:
    return AgentDefinition(**{"name": "k", "description": "d", "prompt": "p", "scope": "user", **facts})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("definition", "denied"),
    [
        (None, {"own"}),
        (kind(), {"own"}),
        (kind(name="prober"), set()),
        (kind(name="prober", mcp_servers=("own",)), {"a", "b"}),
        (kind(mcp_servers=("a",)), {"b", "own"}),
        (kind(mcp_servers=()), {"a", "b", "own"}),
    ],
)
def test_servers_outside_of_the_definition_are_denied(definition: AgentDefinition | None, denied: set[str]) -> None:
    limits = server_limits(definition, TOOLS)
    assert {name for limit in limits for name in limit.denied} == {f"mcp__{server}__x" for server in denied}


def test_listed_server_allows_all_its_tools_unless_some_are_listed() -> None:
    assert tools_allowed_by(kind(tools=("Read",), mcp_servers=("a", "b"))) == ("mcp__a", "mcp__b")
    assert tools_allowed_by(kind(tools=("Read", "mcp__a__x"), mcp_servers=("a", "b"))) == ("mcp__b",)
    assert tools_allowed_by(kind(tools=("Read",))) == ()
