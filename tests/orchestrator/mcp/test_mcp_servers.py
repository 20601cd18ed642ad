"""MCP servers of a project, and the user's approval."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.mcp.server_config import ServerConfig
from coterie.orchestrator.doctor.configuration_checks import configuration_findings
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
