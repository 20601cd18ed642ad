"""Parser of MCP server configurations, and names of MCP tools with the rules that match them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.mcp.server_config import ServerConfig, parse_server
from coterie.agents.mcp.tool_names import LONGEST, matches_tool, plain_name, server_of, tool_name
from coterie.errors import ConfigInvalid


def read(value: object, name: str = "s") -> tuple[ServerConfig | None, list[tuple[str, str | None]]]:
    told: list[tuple[str, str | None]] = []
    return parse_server(name, value, lambda reason, key: told.append((reason, key))), told


def test_both_transports_are_read() -> None:
    stdio, told = read({"command": "x", "args": ["-a"], "env": {"K": "${V}"}, "cwd": "sub", "shared": False})
    assert stdio == ServerConfig(
        name="s", transport="stdio", command=("x", "-a"), env={"K": "${V}"}, cwd="sub", is_shared=False
    )
    http, more = read({"type": "http", "url": "https://h/mcp", "headers": {"A": "b"}})
    assert http == ServerConfig(name="s", transport="http", url="https://h/mcp", headers={"A": "b"})
    assert read({"url": "https://h"})[0] == ServerConfig(name="s", transport="http", url="https://h")
    assert (told, more) == ([], [])


@pytest.mark.parametrize(
    ("value", "key", "words"),
    [
        ([], None, "must be an object with a command, or with a url"),
        ({}, "command", "has no command"),
        ({"command": ""}, "command", "has no command"),
        ({"command": "x", "args": "-a"}, "args", "must be a list of strings"),
        ({"command": "x", "args": [1]}, "args", "must be a list of strings"),
        ({"command": "x", "env": {"A": 1}}, "env", "must be a mapping of strings"),
        ({"command": "x", "cwd": 1}, "cwd", "must be a path"),
        ({"url": "ftp://h"}, "url", "has no url"),
        ({"url": "https://h", "headers": []}, "headers", "must be a mapping of strings"),
        ({"type": "sse", "url": "https://h"}, "type", "sse, which is not supported"),
        ({"type": "ws", "url": "https://h"}, "type", "it can be stdio or http"),
    ],
)
def test_invalid_server_is_reported_with_its_key(value: Any, key: str | None, words: str) -> None:
    config, told = read(value)
    assert config is None
    assert [(words in reason, where) for reason, where in told] == [(True, key)]


def test_unknown_keys_and_invalid_names_are_reported_and_a_disabled_server_not() -> None:
    config, told = read({"command": "x", "arg": [], "shared": "maybe"})
    assert config == ServerConfig(name="s", transport="stdio", command=("x",))
    assert [key for _, key in told] == ["arg", "shared"]
    assert "did you mean args?" in told[0][0]
    assert read({"command": "x", "disabled": True}) == (None, [])
    for name in ("", "___", "x" * 65):
        config, told = read({"command": "x"}, name)
        assert (config, len(told)) == (None, 1)


def test_variables_are_replaced_everywhere_with_defaults() -> None:
    written, _ = read({"command": "${A}/x", "args": ["${B:-b}"], "env": {"K": "k${C:-}"}})
    assert written is not None
    filled = written.with_variables({"A": "a"})
    assert (filled.command, filled.env) == (("a/x", "b"), {"K": "k"})
    assert written.variables == {"A", "B", "C"}
    with pytest.raises(
        ConfigInvalid, match=r"the environment variable A is not set; set it, or write \$\{A:-default\}"
    ):
        written.with_variables({})


def test_approved_content_changes_with_every_byte() -> None:
    one, other = read({"command": "x"})[0], read({"command": "x", "env": {"A": "b"}})[0]
    assert one is not None
    assert other is not None
    assert one.content == read({"command": "x", "args": []})[0].content  # type: ignore[union-attr]  # it is one
    assert one.content != other.content


LOG = "mcp__git__log"


@given(st.text(max_size=80), st.text(max_size=80))
def test_tool_names_are_valid_for_the_api_and_resolve_to_their_server(server: str, tool: str) -> None:
    assert (tool_name("s", "a.b/c"), tool_name("s", ""), tool_name("s", "x" * LONGEST)) == ("mcp__s__a_b_c", None, None)
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
        *((entry, LOG, True) for entry in (LOG, "mcp__git", "mcp__git__*", "mcp__git__lo*", "mcp__*")),
        *((entry, "mcp__github__log", False) for entry in ("mcp__git", "mcp__git__*")),
        (LOG, "mcp__git__log_all", False),
        ("Read", "Read", True),
        *((entry, "Read", False) for entry in ("Re*", "mcp__git")),
    ],
)
def test_entry_matches_a_tool_its_server_or_a_prefix(entry: str, name: str, *, is_meant: bool) -> None:
    assert matches_tool(entry, name) is is_meant
