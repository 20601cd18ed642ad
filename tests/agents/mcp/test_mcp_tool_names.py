"""Names of MCP tools, and rules that match them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.mcp.tool_names import LONGEST, matches_tool, plain_name, server_of, tool_name


@given(st.text(max_size=80), st.text(max_size=80))
def test_tool_names_are_valid_for_the_api_and_resolve_to_their_server(server: str, tool: str) -> None:
    plain = plain_name(server)
    name = tool_name(plain, tool)
    assert "__" not in plain
    if plain and tool and name is not None:
        assert name.isascii()
        assert name.replace("_", "a").replace("-", "a").isalnum()
        assert len(name) <= LONGEST
        assert server_of(name) == plain
        assert matches_tool(f"mcp__{plain}", name)
        assert matches_tool(f"mcp__{plain}__*", name)


@pytest.mark.parametrize(
    ("entry", "name", "is_meant"),
    [
        ("mcp__git__log", "mcp__git__log", True),
        ("mcp__git", "mcp__git__log", True),
        ("mcp__git__*", "mcp__git__log", True),
        ("mcp__git__lo*", "mcp__git__log", True),
        ("mcp__*", "mcp__git__log", True),
        ("mcp__git", "mcp__github__log", False),
        ("mcp__git__log", "mcp__git__log_all", False),
        ("mcp__git__*", "mcp__github__log", False),
        ("Read", "Read", True),
        ("Re*", "Read", False),
        ("mcp__git", "Read", False),
    ],
)
def test_entry_matches_a_tool_its_server_or_a_prefix(entry: str, name: str, *, is_meant: bool) -> None:
    assert matches_tool(entry, name) is is_meant


def test_name_that_the_api_would_reject_is_none() -> None:
    assert tool_name("s", "x" * LONGEST) is None
    assert tool_name("s", "") is None
    assert tool_name("s", "a.b/c") == "mcp__s__a_b_c"
