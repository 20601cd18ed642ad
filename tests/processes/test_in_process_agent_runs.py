"""Agents that are tasks in the process of their parent; from outside they look like any other."""

import os
import signal
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import trio

from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.mailbox.errors import RecipientEnded
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.supervisor import in_process_agents
from coterie.orchestrator.supervisor.agent_run import NO_RESTARTS, RestartPolicy
from coterie.session_directory import EVENT_LOG, TRANSCRIPT
from tests.orchestrator.supervisor.git_repositories import make_repository
from tests.processes.root_harness import open_root_harness

DEFINITION = """---
name: near
description: Works in the process of who starts it.
process: shared
---
You work nearby.
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, home: Path, runtime: Path) -> Path:
    """A repository with an agent type that shares its parent's process."""
    del home, runtime
    directory = make_repository(tmp_path / "project")
    (directory / ".coterie" / "agents").mkdir(parents=True)
    (directory / ".coterie" / "agents" / "near.md").write_text(DEFINITION)
    return directory


def delegating(then: str, *below: str) -> str:
    """Return a script in which *boss* starts *guest* in its process and says *then*; *below* are *guest*'s turns."""
    agent = '{Agent: {description: "d", prompt: "p", subagent_type: near, name: guest}}'
    turns = "".join(f"\n  - {turn}" for turn in below)
    return f"boss:\n  - tools: [{agent}]\n  - {then}\nguest:{turns}"


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the agents that have not ended."""
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


async def test_shared_agent_runs_in_its_parents_process_and_looks_like_any_other(project: Path) -> None:
    script = delegating(
        '{text: "It says {{last_tool_result}}"}',
        '{tools: [{Bash: {command: "echo $PPID"}}]}',
        '{text: "in {{last_tool_result}}"}',
    )
    async with open_root_harness(project, script) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss"))
        reports = await tree.reports()
        assert list(reports) == ["boss"]
        assert "guest has ended. Status: completed." in reports["boss"].result
        assert f"in {tree.pid('boss')}" in reports["boss"].result
        assert tree.pid("guest") == tree.pid("boss")
        assert tree.states("guest") == ["starting", "running", "done"]
        assert [(e.parent, e.incarnation) for e in tree.events if e.name == "guest"] == [("boss", 1)] * 3
        directory = tree.session.agent_directory("guest")
        assert load_transcript(directory / TRANSCRIPT).conversation is not None
        assert b'"kind":"finished"' in (directory / EVENT_LOG).read_bytes()
        assert tree.supervisor.services.mail.roster.members()["guest"].state == "ended"
        lines = read_ledger(tree.session.directory / LEDGER).lines
        callers = [("boss", "main"), ("guest", "boss"), ("guest", "boss"), ("boss", "main")]
        assert [(line.agent, line.parent) for line in lines] == callers
        billed = sum(Decimal(request["cost_usd"]) for request in tree.served.requests)
        account = tree.root.gateway.accounts.session
        assert sum(line.cost_usd for line in lines) == billed == account.spent
        assert account.reserved == 0


WAITING = delegating('{text: "It says {{last_tool_result}}"}', '{tools: [{Bash: {command: "sleep 600 & sleep 600"}}]}')


async def test_stopped_shared_agent_leaves_nothing_and_its_parent_continues(project: Path) -> None:
    async with open_root_harness(project, WAITING, grace=0.3) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_shell_runs("guest")
        shells = psutil.Process(tree.pid("boss")).children(recursive=True)
        await tree.supervisor.stop("guest")
        assert alive(shells) == []
        assert tree.states("guest") == ["starting", "running", "stopping", "done"]
        await tree.until_state("boss", "done")
        result = (await tree.reports())["boss"].result
        assert "guest has ended. Status: killed." in result
        assert "the user stopped it." in result
        assert tree.states("boss") == ["starting", "running", "done"]
        with pytest.raises(RecipientEnded):
            await tree.write("guest", "are you there?")


async def test_background_processes_of_a_shared_agent_end_with_it(project: Path) -> None:
    script = """
boss:
  - tools: [{Agent: {description: "d", prompt: "p", subagent_type: near, name: guest}}]
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "done"}
guest:
  - tools: [{Bash: {command: "setsid sleep 600 > /dev/null 2>&1 & echo $! > left"}}]
  - {text: "left one"}
"""
    async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_state("guest", "done")
        assert not psutil.pid_exists(int((project / "left").read_text()))
        assert psutil.pid_exists(tree.pid("boss"))
        (project / "go").touch()


async def test_shared_agent_in_a_hanging_process_ends_with_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process_agents, "CANCEL_TIMEOUT", 0.1)
    async with open_root_harness(project, WAITING, grace=0.1) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = NO_RESTARTS
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_shell_runs("guest")
        os.kill(tree.pid("boss"), signal.SIGSTOP)
        await tree.supervisor.stop("guest")
        await tree.until_state("boss", "killed")
        assert tree.states("guest") == ["starting", "running", "stopping", "killed"]
        assert (await tree.mail("boss"))[0].kind == "task_notification"


async def test_killed_parent_is_notified_once_that_its_in_process_agent_ended(project: Path) -> None:
    script = delegating(
        '{text: "{{last_tool_result}} {{last_user_text}}"}', '{tools: [{Bash: {command: "sleep 600"}}]}'
    )
    async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = RestartPolicy(limit=2, first_wait=0.01)
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_shell_runs("guest")
        first = psutil.Process(tree.pid("boss"))
        shells = first.children(recursive=True)
        first.kill()
        await tree.until_state("boss", "done")
        assert alive(shells) == []
        report = (await tree.reports())["boss"]
        assert report.status == "completed"
        assert report.result.count("Its task in the process of its parent was killed.") == 1
        assert tree.states("guest")[-1] == "killed"
        assert tree.root.gateway.accounts.session.reserved == 0
        assert (tree.supervisor.runs, tree.supervisor.running) == ({}, set())


async def test_a_shared_agent_may_do_no_more_than_its_parent(project: Path) -> None:
    script = delegating(
        '{text: "{{last_tool_result}}"}',
        '{tools: [{Write: {file_path: "a.txt", content: "x"}}]}',
        '{text: "It said: {{last_tool_result}}"}',
    )
    async with open_root_harness(project, script) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss", mode="plan"))
        assert not (project / "a.txt").exists()
        assert "plan" in (await tree.reports())["boss"].result


async def test_shared_agent_may_have_a_worktree_shared_agents_and_forks(project: Path) -> None:
    script = """
boss:
  - tools: [{Agent: {description: "d", prompt: "p", subagent_type: near, name: guest, isolation: worktree}}]
  - {text: "It says {{last_tool_result}}"}
guest:
  - tools: [{Bash: {command: "pwd > here"}}]
  - tools: [{Agent: {description: "d", prompt: "p", subagent_type: near, name: lowest}}]
  - tools: [{Agent: {description: "d", prompt: "p", subagent_type: fork, name: twig}}]
  - {text: "I was told: {{last_user_text}}", times: always}
lowest: [{text: "a door far below"}]
twig: [{text: "a leaf"}]
"""
    async with open_root_harness(project, script) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss"))
        assert "a leaf" in (await tree.reports())["boss"].result
        assert tree.pid("twig") != tree.pid("boss") == tree.pid("guest") == tree.pid("lowest")
        parents = {e.name: e.parent for e in tree.events}
        assert parents == {"boss": "main", "guest": "boss", "lowest": "guest", "twig": "guest"}
        place = project / ".coterie" / "worktrees" / f"{tree.session.id}-guest"
        assert (place / "here").read_text() == f"{place}\n"
