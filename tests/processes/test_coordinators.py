"""A coordinator may only delegate; that is its own limit, and neither its workers' nor its forks'."""

from pathlib import Path

import attrs
import pytest
import trio

from tests.processes.trees import Tree, open_tree

COORDINATOR = """---
name: coordinator
description: Delegates everything.
tools: Agent, SendMessage
---
You delegate.
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:
    """A directory to work in, with a coordinator, and a home of its own."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    definitions = tmp_path / "project" / ".coterie" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "coordinator.md").write_text(COORDINATOR)
    return tmp_path / "project"


async def test_a_worker_of_a_coordinator_can_write_files_and_the_coordinator_cannot(project: Path) -> None:
    script = """
boss:
  - tools: [{Write: {file_path: "own.txt", content: "x"}}]
  - tools: [{Agent: {description: "write", prompt: "write", name: worker}}]
  - {text: "{{last_tool_result}}"}
worker:
  - tools: [{Write: {file_path: "a.txt", content: "by a worker"}}]
  - {text: "It said: {{last_tool_result}}"}
"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree:
            await _coordinate(tree)
            assert (project / "a.txt").read_text() == "by a worker"
            assert not (project / "own.txt").exists()


async def test_a_fork_of_a_coordinator_can_write_files(project: Path) -> None:
    script = """
boss:
  - tools: [{Agent: {description: "write", prompt: "write it", subagent_type: fork, name: part}}]
  - {text: "I was told: {{last_user_text}}", times: always}
part:
  - tools: [{Write: {file_path: "a.txt", content: "by a fork"}}]
  - {text: "It said: {{last_tool_result}}"}
"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree:
            await _coordinate(tree)
            assert (project / "a.txt").read_text() == "by a fork"


async def _coordinate(tree: Tree) -> None:
    await tree.supervisor.run_agent(attrs.evolve(tree.order("boss"), definition="coordinator"))
    report = (await tree.reports())["boss"]
    assert report.status == "completed"
