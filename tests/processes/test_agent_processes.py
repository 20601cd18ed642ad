"""Agents as processes: forked from a warm one, owned by one task each, and heard by mail."""

import os
import signal
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import trio

from coterie.agents.events import AgentChanged
from coterie.orchestrator.gate import Limits
from coterie.orchestrator.tree.supervisor import Outcome
from tests.processes.trees import Tree, open_tree

SCRIPT = """
scout:
  - tools: [{Bash: {command: "echo found > found.txt; cat found.txt"}}]
  - {text: "It says {{last_tool_result}}"}
default: [{text: "nothing to do", times: always}]
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:
    """A directory to work in, and a home of its own."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


async def test_an_agent_does_its_task_in_its_own_process_and_reports_by_mail(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT) as tree:
            outcome = await tree.supervisor.run_agent(tree.order("scout", "look around"))
            assert outcome == Outcome(name="scout", incarnation=1, end="done", status=0)
            assert (project / "found.txt").read_text() == "found\n"
            report = (await tree.reports())["scout"]
            assert (report.status, report.turns, report.tool_calls) == ("completed", 2, 1)
            assert "It says found" in report.result
            billed = sum(Decimal(entry["cost_usd"]) for entry in tree.served.requests)
            assert Decimal(report.cost_usd) == billed == tree.supervisor.gate.standing().session.spent.dollars
            assert tree.states("scout") == ["starting", "running", "done"]
            assert tree.supervisor.office.roster.members()["scout"].state == "ended"


async def test_many_agents_at_once_each_report_once(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT) as tree:
            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(tree.supervisor.run_agent, tree.order(f"agent-{number}"))
            reports = await tree.reports()
            assert {name: report.status for name, report in reports.items()} == {
                f"agent-{number}": "completed" for number in range(12)
            }


DELEGATING = """
boss:
  - tools:
      - Agent: {description: "look", prompt: "look left", name: left}
      - Agent: {description: "look", prompt: "look right", name: right}
  - {text: "Left says {{tool_result.0}} Right says {{tool_result.1}}"}
left: [{text: "nothing on the left"}]
right: [{text: "a door on the right"}]
"""


async def test_an_agent_starts_others_at_once_and_gets_their_reports_as_results(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, DELEGATING) as tree:
            await tree.supervisor.run_agent(tree.order("boss"))
            report = (await tree.reports())["boss"]
            assert report.status == "completed"
            assert "left has ended. Status: completed." in report.result
            assert "nothing on the left" in report.result
            assert "a door on the right" in report.result
            parents = {e.name: e.parent for e in tree.events if isinstance(e, AgentChanged)}
            assert parents == {"boss": "main", "left": "boss", "right": "boss"}
            started = [(e.name, e.state) for e in tree.events if isinstance(e, AgentChanged)]
            assert started.index(("right", "starting")) < started.index(("left", "done"))


BACKGROUND = """
boss:
  - tools: [{Agent: {description: "look", prompt: "look", name: scout, run_in_background: true}}]
  - {text: "I wait."}
  - {text: "I was told: {{last_user_text}}"}
scout:
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "a door on the right"}
"""


async def test_an_agent_waits_for_those_in_the_background_and_is_woken_by_their_reports(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, BACKGROUND) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.order("boss"))
            await tree.reached("boss", "waiting")
            (project / "go").touch()
            await tree.reached("boss", "done")
            report = (await tree.reports())["boss"]
            assert report.status == "completed"
            assert "I was told: " in report.result
            assert "a door on the right" in report.result
            waits = [e.what for e in tree.events if isinstance(e, AgentChanged) and e.state == "waiting"]
            assert waits == ["1 agent"]


WAITING = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
  - {text: "It says {{last_tool_result}}"}
sleeper:
  - tools: [{Bash: {command: "sleep 600 & sleep 600"}}]
"""


async def test_a_parent_hears_of_a_child_that_was_killed_and_nothing_of_it_is_left(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, WAITING) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.order("boss"))
            await _with_shells(tree, "sleeper")
            shells = psutil.Process(tree.pid("sleeper")).children(recursive=True)
            os.kill(tree.pid("sleeper"), signal.SIGKILL)
            await tree.reached("boss", "done")
            report = (await tree.reports())["boss"]
            assert "Status: killed. Its process was ended by SIGKILL." in report.result
            assert tree.states("sleeper") == ["starting", "running", "killed"]
            assert not [shell for shell in shells if shell.is_running() and shell.status() != psutil.STATUS_ZOMBIE]


async def test_children_end_with_their_parent_and_all_within_the_grace(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, WAITING, grace=0.5) as tree:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tree.supervisor.run_agent, tree.order("boss"))
                await _with_shells(tree, "sleeper")
                below = psutil.Process().children(recursive=True)
                nursery.cancel_scope.cancel()
            left = [p for p in below if p.is_running() and p.pid != tree.zygote]
            assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
            assert tree.supervisor.running == 0


async def test_a_child_of_a_parent_that_may_only_plan_cannot_write(project: Path) -> None:
    script = """
planner:
  - tools: [{Agent: {description: "write", prompt: "write", name: writer, subagent_type: worker}}]
  - {text: "{{last_tool_result}}"}
writer:
  - tools: [{Write: {file_path: "a.txt", content: "x"}}]
  - {text: "It said: {{last_tool_result}}"}
"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree:
            await tree.supervisor.run_agent(tree.order("planner", mode="plan"))
            assert "In plan mode you may only read" in (await tree.reports())["planner"].result
            assert not (project / "a.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('subagent_type: "explorer"', "explore"),
        ('name: "../x"', "a name has letters"),
        ('name: "main"', "There is a main at work already"),
    ],
)
async def test_an_agent_that_cannot_be_started_is_refused_with_what_would_be_right(
    project: Path, arguments: str, reason: str
) -> None:
    script = f"""
boss:
  - tools: [{{Agent: {{description: "d", prompt: "p", {arguments}}}}}]
  - {{text: "{{{{last_tool_result}}}}"}}
"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree:
            await tree.supervisor.run_agent(tree.order("boss"))
            assert reason in (await tree.reports())["boss"].result


async def _with_shells(tree: Tree, name: str) -> None:
    """Wait until a shell of *name* runs."""
    await tree.reached(name, "running")
    while not psutil.Process(tree.pid(name)).children():  # noqa: ASYNC110 - nothing tells
        await trio.sleep(0.005)


async def test_a_budget_of_the_session_holds_in_every_process(project: Path) -> None:
    with trio.fail_after(60):
        async with open_tree(project, SCRIPT, limits=Limits(dollars=Decimal("0.0001"))) as tree:
            await tree.supervisor.run_agent(tree.order("scout"))
            report = (await tree.reports())["scout"]
            assert report.status == "blocked"
            assert "$0.0001" in report.summary
            assert tree.served.requests == []
