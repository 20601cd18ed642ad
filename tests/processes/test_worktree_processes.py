"""Agents in separate git worktrees, as real processes in real repositories."""

import json
import os
import signal
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from coterie.clock import Clock
from coterie.orchestrator.cli.main import main
from coterie.orchestrator.supervisor.agent_run import AgentRun, RestartPolicy
from coterie.orchestrator.supervisor.worktree_lifecycle import open_worktree
from coterie.session_directory import SessionDirectory
from tests.orchestrator.supervisor.git_repositories import branches, git, make_repository, worktrees
from tests.processes.root_harness import RootHarness, open_root_harness

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, home: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a separate home."""
    del home, runtime
    directory = make_repository(tmp_path / "project")
    monkeypatch.chdir(directory)
    return directory


def place_of(tree: RootHarness, project: Path, name: str) -> Path:
    return project / ".coterie" / "worktrees" / f"{tree.session.id}-{name}"


TWO_AT_ONCE = """
boss:
  - tools:
      - Agent: {description: "d", prompt: "p", name: writer, isolation: worktree}
      - Agent: {description: "d", prompt: "p", name: reader, isolation: worktree}
  - {text: "One: {{tool_result.0}} Two: {{tool_result.1}}"}
writer:
  - tools: [{Bash: {command: "pwd; echo better > readme.txt; echo new > new.txt"}}]
  - {text: "I was in {{last_tool_result}}"}
reader:
  - tools: [{Bash: {command: "cat readme.txt; ls"}}]
  - {text: "There was {{last_tool_result}}"}
"""


async def test_changed_worktree_is_kept_and_unchanged_one_removed(project: Path) -> None:
    (project / "readme.txt").write_text("not committed\n")
    async with open_root_harness(project, TWO_AT_ONCE) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss"))
        report, place = (await tree.reports())["boss"].result, place_of(tree, project, "writer")
        branch = f"coterie/{tree.session.id}/writer"
        assert f"Its work is in {place}, on the branch {branch}: 2 changed files." in report
        assert f"I was in {place}" in report
        assert "There are no changes in its worktree." in report
        assert "There was hello" in report
        assert (place / "readme.txt").read_text() == "better\n"
        assert (project / "readme.txt").read_text() == "not committed\n"
        assert not (project / "new.txt").exists()
        assert worktrees(project) == [place.name]
        assert branches(project) == [branch, "trunk"]


async def test_agent_may_write_in_its_worktree_but_not_in_the_project(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Agent: {{description: "d", prompt: "p", name: scout, isolation: worktree}}}}]
  - {{text: "{{{{last_tool_result}}}}"}}
scout:
  - tools:
      - Write: {{file_path: "inside.txt", content: "x"}}
      - Write: {{file_path: "{project}/outside.txt", content: "x"}}
      - Write: {{file_path: ".coterie/settings.toml", content: "x"}}
  - {{text: "{{{{tool_result.0}}}} {{{{tool_result.1}}}} {{{{tool_result.2}}}}"}}
"""
    async with open_root_harness(project, script) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss", mode="acceptEdits"))
        report, place = (await tree.reports())["boss"].result, place_of(tree, project, "scout")
        assert (place / "inside.txt").exists()
        assert not (project / "outside.txt").exists()
        assert "is outside" in report
        assert "is protected" in report


HALF = """
scout:
  - tools: [{Bash: {command: "echo half > half.txt; touch begun; sleep 1000"}}]
  - tools: [{Bash: {command: "cat half.txt; pwd"}}]
  - {text: "{{last_tool_result}}"}
"""


async def kill_at_work(tree: RootHarness, place: Path) -> None:
    """Kill scout after it has written a file."""
    while not (place / "begun").exists():  # noqa: ASYNC110 - the simplest reader there is
        await trio.sleep(0.005)
    os.kill(tree.pid("scout"), signal.SIGKILL)


async def test_restarted_agent_finds_its_worktree(project: Path) -> None:
    async with open_root_harness(project, HALF) as tree:
        tree.supervisor.restarts = RestartPolicy(first_wait=0)
        place = place_of(tree, project, "scout")
        async with trio.open_nursery() as nursery:
            order = AgentRun(spec=tree.agent_spec("scout"), isolation="worktree")
            nursery.start_soon(tree.supervisor.run_agent, order)
            await kill_at_work(tree, place)
        report = (await tree.reports())["scout"]
        assert f"half\n{place}" in report.result
        assert f"Its work is in {place}" in report.summary


def doctor(*arguments: str) -> tuple[int, dict[str, str | None]]:
    """Return the exit code, and the findings with their actions by kind."""
    done = CliRunner().invoke(main, ["doctor", "--json", *arguments])
    return done.exit_code, {one["where"]: one["remedy"] for one in json.loads(done.stdout)["findings"]}


def test_doctor_removes_unchanged_worktrees_and_reports_others(project: Path) -> None:
    session = SessionDirectory.create(project, Clock(), task="t", model="m")
    idle = trio.run(open_worktree, session, "idle", project)
    busy = trio.run(open_worktree, session, "busy", project)
    git(project, "worktree", "lock", str(busy.path))
    remedy = "remove it and its branch"
    assert doctor() == (1, {str(idle.path): remedy, str(busy.path): None})
    assert worktrees(project) == [busy.path.name, idle.path.name], "to look changes nothing"
    assert doctor("--fix") == (1, {str(idle.path): remedy, str(busy.path): None})
    assert worktrees(project) == [busy.path.name]
    assert branches(project) == [busy.branch, "trunk"]
    assert doctor() == (0, {str(busy.path): None})
