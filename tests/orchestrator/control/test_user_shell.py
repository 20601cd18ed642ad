"""Requests of the user are refused for shells of agents, whatever their environment."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.orchestrator.cli.output import ExitCode


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").write_text(json.dumps({"hooks": {"Stop": [{"command": "true"}]}}))
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "true"}}}))
    return project


def run(project: Path, *words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run `coterie` with *words* below a shell with *environment*."""
    line = shlex.join([sys.executable, "-P", "-m", "coterie", *words])
    # With a second command, so that the shell does not become the first.
    return subprocess.run(
        ["/bin/bash", "-c", f"env -u COTERIE_AGENT {line}; exit $?"],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "what", "record"),
    [(("hooks", "approve", "--yes"), "hooks", "hooks"), (("mcp", "approve", "--all"), "MCP servers", "servers")],
)
def test_agent_cannot_approve_files_of_the_repository(
    project: Path, words: tuple[str, ...], what: str, record: str
) -> None:
    """The command has removed the variable from its environment, but its parent shell has not."""
    refused = run(project, *words, environment={"COTERIE_AGENT": "main@1"})
    assert refused.returncode == ExitCode.USAGE
    assert (
        refused.stderr == f"Error: an agent cannot approve {what}; ask the user to run `coterie {words[0]} approve`\n"
    )
    assert not list((project.parent / "home").rglob("approved-*.json"))
    assert run(project, *words, environment={}).returncode == 0
    assert [path.name for path in (project.parent / "home").rglob("approved-*.json")] == [f"approved-{record}.json"]
