"""MCP servers of a project with the approval of the user, their tools, and the text of results."""

import json
import os
from pathlib import Path
from typing import Any

import mcp_types
import msgspec
import pytest

from coterie.agents.mcp.messages import ToolImage
from coterie.agents.mcp.server_config import ServerConfig
from coterie.orchestrator.doctor.configuration_checks import configuration_findings
from coterie.orchestrator.mcp.host.tool_conversion import LARGEST_LIST, to_content, usable_tools
from coterie.orchestrator.mcp.host_protocol import ServerSpec
from coterie.orchestrator.mcp.mcp_servers import approve_servers, load_servers
from tests.orchestrator.cli.command_runner import coterie, offered, printed


@pytest.fixture
def project(checkout: Path, home: Path) -> Path:
    home.mkdir()
    return checkout


def write(path: Path, **servers: Any) -> None:
    path.write_text(json.dumps({"mcpServers": servers}, indent=1))


def test_approved_project_server_replaces_the_user_server(project: Path) -> None:
    write(project.parent / "home/mcp.json", both={"command": "mine"})
    write(project / ".mcp.json", both={"command": "theirs"}, more={"command": "x"})
    found = load_servers(project)
    assert [server.config.where for server in found.approved] == ["mine"]
    assert [server.name for server in found.waiting] == ["both", "more"]
    approve_servers(project, found.waiting[:1])
    found = load_servers(project)
    assert [server.config.where for server in found.approved] == ["theirs"]
    assert [server.name for server in found.waiting] == ["more"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("{", 1, "is not JSON"),
        ("[]", 1, "has no servers"),
        ('{"mcpServers": []}', 1, "has no servers"),
        ("[" * 100_000, 1, "is nested too deep"),
        ('{"mcpServers": {},\n "extra": 1}', 2, "unknown key 'extra'"),
        ('{"mcpServers": {\n"a b": {"command": "x"},\n"a_b": {"command": "y"}}}', 3, "the name of another server"),
    ],
)
def test_server_file_problem_is_reported_with_its_line_also_by_the_doctor(
    project: Path, text: str, line: int, words: str
) -> None:
    (project / ".mcp.json").write_text(text)
    [problem] = load_servers(project).problems
    assert (problem.path, problem.line) == (project / ".mcp.json", line)
    assert words in problem.reason
    [finding] = configuration_findings(project)
    assert (finding.where, finding.kind) == (f"{project / '.mcp.json'}:{line}", "bad_settings")


def test_unreadable_server_file_is_reported(project: Path) -> None:
    os.mkfifo(project / ".mcp.json")
    (project.parent / "home/mcp.json").write_bytes(b"\xff")
    assert [problem.reason.partition(":")[0] for problem in load_servers(project).problems] == [
        "not UTF-8",
        "not a regular file",
    ]


def test_commands_list_complete_and_approve_without_showing_secrets(project: Path) -> None:
    write(project / ".mcp.json", a={"command": "x", "env": {"K": "secret-value"}}, b={"url": "https://h", "z": 1})
    assert offered("mcp", "approve", "a") == ["a"]
    listed = printed("mcp", "list")
    assert [(row["name"], row["where"], row["is_approved"]) for row in listed["servers"]] == [
        ("a", "x", False),
        ("b", "https://h", False),
    ]
    assert len(listed["problems"]) == 1
    plain = coterie("mcp", "list")
    assert plain.stdout == "a  project  x  needs approval\nb  project  https://h  needs approval\n"
    assert "secret-value" not in plain.output + json.dumps(listed)
    assert coterie("mcp", "approve").exit_code == 2
    assert coterie("mcp", "approve", "c").exit_code == 2
    assert coterie("mcp", "approve", "a", "--json").exit_code == 0
    assert [server.is_approved for server in load_servers(project).servers] == [True, False]
    refused = coterie("mcp", "test", "b")
    assert (refused.exit_code, "`coterie mcp approve b`" in refused.stderr) == (2, True)
    assert coterie("mcp", "approve", "--all").stdout == "approved b: https://h\n"


def test_definition_server_needs_a_unique_name(project: Path) -> None:
    (project / ".coterie/agents").mkdir(parents=True)
    for name, command in (("a", "x"), ("b", "x"), ("c", "y")):
        text = f"---\nname: {name}\ndescription: d\nmcpServers: {{s: {{command: {command}}}}}\n---\nWork.\n"
        (project / f".coterie/agents/{name}.md").write_text(text)
    found = load_servers(project)
    [server] = found.waiting
    assert (server.kinds, server.config.is_shared) == (("a", "b"), False)
    [problem] = found.problems
    assert problem.path.name == "c.md"
    write(project.parent / "home/mcp.json", s={"command": "z"})
    assert [server.config.where for server in load_servers(project).servers] == ["z"]


def test_secrets_are_values_of_variables_environment_and_headers(tmp_path: Path) -> None:
    written = ServerConfig(
        name="s", transport="http", url="https://h/${TOKEN}", headers={"Authorization": "Bearer ${KEY}", "A": "short"}
    )
    spec = ServerSpec.of(written, {"TOKEN": "token-12345", "KEY": "key-123456", "OTHER": "other-12345"}, tmp_path)
    assert spec.config.url == "https://h/token-12345"
    assert spec.redact("key-123456 at token-12345, other-12345, short") == "*** at ***, other-12345, short"


def tool(name: str, schema: dict[str, Any] | None = None, description: str = "d") -> mcp_types.Tool:
    return mcp_types.Tool(name=name, description=description, input_schema=schema or {"type": "object"})


def test_tools_are_sorted_and_keep_their_schemas() -> None:
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {}}, "x-own": 1}
    listed = usable_tools("s", [tool("b"), tool("a", schema)], "  Use a first. ")
    assert [each.name for each in listed.tools] == ["mcp__s__a", "mcp__s__b"]
    assert msgspec.json.decode(listed.tools[0].schema) == schema
    assert list(msgspec.json.decode(listed.tools[0].schema)) == list(schema)
    assert listed.instructions == "Use a first."


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "is not of type object"),
        ({"type": "object", "anyOf": []}, "has anyOf at the top"),
        ({"type": "object", "properties": {"a": {"type": "strange"}}}, "is invalid"),
        ({"type": "object", "description": "x" * 40_000}, "over 32,000"),
    ],
)
def test_tool_refused_by_the_api_is_left_out_with_the_reason(schema: dict[str, Any], words: str) -> None:
    listed = usable_tools("s", [tool("bad", schema), tool("good")])
    assert [each.tool for each in listed.tools] == ["good"]
    [reason] = listed.left_out
    assert reason.startswith("bad: ")
    assert words in reason


def test_duplicate_names_and_large_lists_are_cut() -> None:
    [reason] = usable_tools("s", [tool("a b"), tool("a_b")]).left_out
    assert reason.startswith("a_b: another tool has the name mcp__s__a_b too")
    many = [tool(f"t{number}", description="x" * 2_000) for number in range(200)]
    listed = usable_tools("s", many)
    assert 0 < len(listed.tools) < 200
    assert sum(len(each.description) for each in listed.tools) <= LARGEST_LIST
    assert len(listed.tools) + len(listed.left_out) == 200


def test_every_content_type_is_shown_or_named() -> None:
    result = mcp_types.CallToolResult(
        content=[
            mcp_types.TextContent(type="text", text="hello"),
            mcp_types.ImageContent(type="image", mime_type="image/png", data="AA=="),
            mcp_types.AudioContent(type="audio", mime_type="audio/wav", data="AA=="),
            mcp_types.ResourceLink(type="resource_link", name="log", uri="file:///log"),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.TextResourceContents(uri="file:///a", text="inside")
            ),
            mcp_types.EmbeddedResource(
                type="resource",
                resource=mcp_types.BlobResourceContents(uri="file:///b", mime_type="image/gif", blob="BB=="),
            ),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.BlobResourceContents(uri="file:///c", blob="CC==")
            ),
        ],
        is_error=True,
    )
    said = to_content(result)
    assert said.is_error
    assert said.text.splitlines() == [
        "hello",
        "[audio of type audio/wav, which cannot be shown]",
        "[log, file:///log]",
        "[file:///a]",
        "inside",
        "[file:///c: bytes, which cannot be shown]",
    ]
    pictures = [ToolImage(media_type="image/png", data="AA=="), ToolImage(media_type="image/gif", data="BB==")]
    assert said.pictures == pictures

    # Structured content becomes text only if there is no other.
    assert to_content(mcp_types.CallToolResult(content=[], structured_content={"a": 1})).text == '{"a":1}'
    both = mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text="a is 1")], structured_content={"a": 1}
    )
    assert to_content(both).text == "a is 1"
