"""Agents as processes: forked from a zygote, each owned by one task, and connected by mail."""

import os
import signal
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import trio

from coterie.mailbox.message_bodies import TaskNotification
from coterie.orchestrator.supervisor.agent_run import NO_RESTARTS
from coterie.orchestrator.supervisor.agent_status import AgentOutcome
from tests import warm_start
from tests.processes.root_harness import open_root_harness
from tests.processes.session_record import alive

SCRIPT = """
scout:
  - tools: [{Bash: {command: "echo found > found.txt; cat found.txt"}}]
  - {text: "It says {{last_tool_result}}"}
default: [{text: "nothing to do", times: always}]
"""

pytestmark = pytest.mark.slow


async def test_agent_runs_in_its_own_process_and_reports_by_mail(project: Path) -> None:
    async with open_root_harness(project, SCRIPT) as tree:
        outcome = await tree.supervisor.run_agent(tree.agent_run("scout", "look around"))
        assert outcome == AgentOutcome(name="scout", incarnation=1, end="done", status=0)
        assert (project / "found.txt").read_text() == "found\n"
        [stored] = await tree.mail()
        report = TaskNotification.from_body(stored.body)
        assert (report.status, report.turns, report.tool_calls) == ("completed", 2, 1)
        assert [event.report for event in tree.events] == [None, None, stored.id]
        assert "It says found" in report.result
        billed = sum(Decimal(entry["cost_usd"]) for entry in tree.served.requests)
        assert Decimal(report.cost_usd) == billed == tree.supervisor.services.gateway.accounts.session.spent
        assert tree.states("scout") == ["starting", "running", "done"]
        assert tree.supervisor.services.mail.roster.members()["scout"].state == "ended"


WAITING = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
  - {text: "It says {{last_tool_result}}"}
sleeper:
  - tools: [{Bash: {command: "sleep 600 & sleep 600"}}]
"""


async def test_parent_is_notified_of_a_killed_child_without_leftovers(project: Path) -> None:
    async with open_root_harness(project, WAITING) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = NO_RESTARTS
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_shell_runs("sleeper")
        shells = psutil.Process(tree.pid("sleeper")).children(recursive=True)
        directory = tree.session.agent_directory("sleeper")
        draft = directory / f".coterie-{tree.pid('sleeper')}-1.draft"
        draft.write_text("what it could not finish")
        assert list(directory.glob(".shell-*"))
        os.kill(tree.pid("sleeper"), signal.SIGKILL)
        await tree.until_state("boss", "done")
        assert not [*directory.glob(".shell-*"), *directory.glob(draft.name)]
        report = (await tree.reports())["boss"]
        assert "Status: killed. Its process was ended by SIGKILL." in report.result
        assert tree.states("sleeper") == ["starting", "running", "killed"]
        assert alive(shells) == []


async def test_children_end_with_their_parent_within_the_grace_period(project: Path) -> None:
    async with open_root_harness(project, WAITING, grace=0.5) as tree:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
            await tree.until_shell_runs("sleeper")
            below = psutil.Process().children(recursive=True)
            nursery.cancel_scope.cancel()
        kept = (tree.zygote, tree.root.cleanup.pid, warm_start.warm_pid())
        assert [process for process in alive(below) if process.pid not in kept] == []
        assert tree.supervisor.running == set()


async def test_unnamed_agents_get_different_names_and_invalid_starts_the_solution(project: Path) -> None:
    invalid = {
        'subagent_type: "explorer"': "explore",
        'name: "../x"': "a name has A-Z",
        'name: "main"': "The agent main has not ended",
    }
    starts = [
        f'{{Agent: {{description: "d", prompt: "p", {each}}}}}' for each in (*invalid, *["subagent_type: explore"] * 3)
    ]
    results = " ".join(f"{{{{tool_result.{number}}}}}" for number in range(len(invalid)))
    script = f"""
boss: [{{tools: [{", ".join(starts)}]}}, {{text: "{results}"}}]
default: [{{text: "nothing", times: always}}]
"""
    async with open_root_harness(project, script) as tree:
        await tree.supervisor.run_agent(tree.agent_run("boss"))
        result = (await tree.reports())["boss"].result
        assert [reason for reason in invalid.values() if reason not in result] == []
        assert {event.name for event in tree.events} == {"boss", "explore-1", "explore-2", "explore-3"}
        assert {event.incarnation for event in tree.events} == {1}
