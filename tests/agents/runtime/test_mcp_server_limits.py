"""Limits of agent types on MCP servers."""

import msgspec
import pytest

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.mcp.tool_list_file import ListedTool
from coterie.agents.runtime.setup.agent_permissions import server_limits, tools_allowed_by


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
