"""Agents as processes: forked from a zygote, each owned by one task, and connected by mail."""

import os
import signal
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
import trio

from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.message_bodies import TaskNotification
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.processes.cleanup_daemon import TITLE as CLEANUP_TITLE
from coterie.orchestrator.supervisor.agent_run import NO_RESTARTS, AgentRun
from coterie.orchestrator.supervisor.agent_status import AgentOutcome
from coterie.session_directory import TRANSCRIPT
from tests import warm_start
from tests.processes.root_harness import open_root_harness

SCRIPT = """
scout:
  - tools: [{Bash: {command: "echo found > found.txt; cat found.txt"}}]
  - {text: "It says {{last_tool_result}}"}
default: [{text: "nothing to do", times: always}]
"""

pytestmark = pytest.mark.slow


async def test_agent_runs_in_its_own_process_and_reports_by_mail(project: Path) -> None:
    with trio.fail_after(60):
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


async def test_concurrent_agents_each_report_once(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, SCRIPT) as tree:
            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(tree.supervisor.run_agent, tree.agent_run(f"agent-{number}"))
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


async def test_agent_starts_concurrent_subagents_and_gets_their_results(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, DELEGATING) as tree:
            await tree.supervisor.run_agent(tree.agent_run("boss"))
            report = (await tree.reports())["boss"]
            assert report.status == "completed"
            assert "left has ended. Status: completed." in report.result
            assert "nothing on the left" in report.result
            assert "a door on the right" in report.result
            parents = {e.name: e.parent for e in tree.events}
            assert parents == {"boss": "main", "left": "boss", "right": "boss"}
            started = [(e.name, e.state) for e in tree.events]
            assert started.index(("right", "starting")) < started.index(("left", "done"))


async def test_concurrent_agents_without_a_name_get_different_names(project: Path) -> None:
    script = """
boss:
  - tools:
      - Agent: {description: "d", prompt: "p", subagent_type: explore}
      - Agent: {description: "d", prompt: "p", subagent_type: explore}
      - Agent: {description: "d", prompt: "p", subagent_type: explore}
  - {text: "done"}
default: [{text: "nothing", times: always}]
"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree:
            await tree.supervisor.run_agent(tree.agent_run("boss"))
            assert {event.name for event in tree.events} == {"boss", "explore-1", "explore-2", "explore-3"}
            assert {event.incarnation for event in tree.events} == {1}


BACKGROUND = """
boss:
  - tools: [{Agent: {description: "look", prompt: "look", name: scout, run_in_background: true}}]
  - {text: "I wait."}
  - {text: "I was told: {{last_user_text}}"}
scout:
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "a door on the right"}
"""


async def test_agent_waits_for_background_agents_and_their_reports_wake_it(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, BACKGROUND) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
            await tree.until_state("boss", "waiting")
            (project / "go").touch()
            await tree.until_state("boss", "done")
            report = (await tree.reports())["boss"]
            assert report.status == "completed"
            assert "I was told: " in report.result
            assert "a door on the right" in report.result
            waits = [e.what for e in tree.events if e.state == "waiting"]
            assert waits == ["1 agent"]


WAITING = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
  - {text: "It says {{last_tool_result}}"}
sleeper:
  - tools: [{Bash: {command: "sleep 600 & sleep 600"}}]
"""


async def test_parent_is_notified_of_a_killed_child_without_leftovers(project: Path) -> None:
    with trio.fail_after(60):
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
            assert not [shell for shell in shells if shell.is_running() and shell.status() != psutil.STATUS_ZOMBIE]


async def test_all_processes_end_when_the_root_is_killed(project: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(WAITING)
    command = [sys.executable, "-m", "tests.processes.agent_root", str(project), str(script)]
    # Not with trio: the test must be its parent, and no task waits for it at that moment.
    with trio.fail_after(60), subprocess.Popen(command, stdout=subprocess.PIPE) as root:  # noqa: ASYNC220
        assert root.stdout is not None
        assert await trio.to_thread.run_sync(root.stdout.readline) == b"running\n"
        below = psutil.Process(root.pid).children(recursive=True)
        root.kill()
        [cleanup] = [process for process in below if process.name() == CLEANUP_TITLE]
        others = [process for process in below if process != cleanup]
        assert len([process for process in others if process.name().startswith("coterie")]) == 3
        _, alive = await trio.to_thread.run_sync(partial(psutil.wait_procs, others, timeout=2.0))
        assert alive == []
        assert await trio.to_thread.run_sync(partial(psutil.wait_procs, [cleanup], timeout=30.0)) == ([cleanup], [])


async def test_children_end_with_their_parent_within_the_grace_period(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, WAITING, grace=0.5) as tree:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
                await tree.until_shell_runs("sleeper")
                below = psutil.Process().children(recursive=True)
                nursery.cancel_scope.cancel()
            kept = (tree.zygote, tree.root.cleanup.pid, warm_start.warm_pid())
            left = [p for p in below if p.is_running() and p.pid not in kept]
            assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
            assert tree.supervisor.running == set()


async def test_child_of_a_planning_parent_cannot_write(project: Path) -> None:
    script = """
planner:
  - tools: [{Agent: {description: "write", prompt: "write", name: writer, subagent_type: worker}}]
  - {text: "{{last_tool_result}}"}
writer:
  - tools: [{Write: {file_path: "a.txt", content: "x"}}]
  - {text: "It said: {{last_tool_result}}"}
"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree:
            await tree.supervisor.run_agent(tree.agent_run("planner", mode="plan"))
            assert "In plan mode you may only read" in (await tree.reports())["planner"].result
            assert not (project / "a.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('subagent_type: "explorer"', "explore"),
        ('name: "../x"', "a name has letters"),
        ('name: "main"', "An agent main is already running"),
    ],
)
async def test_invalid_agent_start_is_refused_with_the_solution(project: Path, arguments: str, reason: str) -> None:
    script = f"""
boss:
  - tools: [{{Agent: {{description: "d", prompt: "p", {arguments}}}}}]
  - {{text: "{{{{last_tool_result}}}}"}}
"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree:
            await tree.supervisor.run_agent(tree.agent_run("boss"))
            assert reason in (await tree.reports())["boss"].result


BUSY = """
scout:
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "I was told: {{last_user_text}}", times: always}
"""


async def test_busy_agent_gets_a_message_after_its_tool_calls(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, BUSY) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("scout"))
            await tree.until_shell_runs("scout")
            await tree.write("scout", "look behind the <door>")
            (project / "go").touch()
            await tree.until_state("scout", "done")
            assert "look behind the &lt;door&gt;" in (await tree.reports())["scout"].result


async def test_teammate_is_woken_by_a_message_and_ends_on_request(project: Path) -> None:
    script = 'mate: [{text: "ready"}, {text: "I was told: {{last_user_text}}", times: always}]'
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    tree.supervisor.run_agent, AgentRun(spec=attrs.evolve(tree.agent_spec("mate"), is_teammate=True))
                )
                await tree.until_state("mate", "idle")
                await tree.write("mate", "are you there?")
                while tree.states("mate").count("idle") < 2:  # noqa: ASYNC110 - the simplest reader there is
                    await trio.sleep(0.005)
                nursery.cancel_scope.cancel()
            assert len(tree.served.requests) == 2
            assert tree.states("mate") == ["starting", "running", "idle", "running", "idle", "stopping", "done"]
            mail = await tree.mail()
            assert [envelope.kind for envelope in mail] == ["idle", "idle", "task_notification"]
            assert "are you there?" in mail[-1].body


FORKING = """
boss:
  - tools:
      - Agent: {description: "part", prompt: "part one", subagent_type: fork, name: one}
      - Agent: {description: "part", prompt: "part two", subagent_type: fork, name: two}
      - Agent: {description: "part", prompt: "part three", subagent_type: fork, name: three}
  - {text: "I was told: {{last_user_text}}", times: always}
one: [{tools: [{Agent: {description: "d", prompt: "p", subagent_type: fork}}]}, {text: "{{last_tool_result}}"}]
default: [{text: "done: {{agent}}", times: always}]
"""


async def test_forks_are_processes_that_read_the_prefix_of_their_parent(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, FORKING) as tree:
            await tree.supervisor.run_agent(tree.agent_run("boss", "x" * 20_000))
            by_agent: dict[str, list[dict[str, Any]]] = {}
            for request in tree.served.requests:
                by_agent.setdefault(request["agent"], []).append(request["usage"])
            asked = by_agent["boss"][0]
            cached = asked["cache_creation_input_tokens"] + asked["cache_read_input_tokens"]
            reads = sorted(by_agent[name][0]["cache_read_input_tokens"] for name in ("one", "two", "three"))
            assert reads[0] == cached, "the first fork reads all that its parent had cached"
            assert reads[1] == reads[2] > cached, "the others what they share with the first"
            assert by_agent["one"][1]["cache_read_input_tokens"] > reads[0]
            lines = read_ledger(tree.session.directory / LEDGER).lines
            assert {(line.agent, line.parent) for line in lines} >= {("one", "boss"), ("two", "boss")}
            billed = sum(Decimal(request["cost_usd"]) for request in tree.served.requests)
            assert sum(line.cost_usd for line in lines) == billed
            assert [line.missed for line in lines] == [0] * len(lines)
            heard = (await tree.reports())["boss"]
            assert heard.status == "completed"
            one = load_transcript(tree.session.directory / "agents" / "one" / TRANSCRIPT).conversation
            assert one is not None
            assert any(b"A fork cannot be forked" in segment.data for segment in one.prefix.segments)


async def test_finished_agent_is_resumed_by_a_message(project: Path) -> None:
    script = 'scout: [{text: "a door"}, {text: "You said: {{last_user_text}}"}]'
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("scout", is_kept=True))
            await tree.until_state("scout", "done")
            await tree.write("scout", "which colour?")
            while tree.states("scout").count("done") < 2:  # noqa: ASYNC110 - the simplest reader there is
                await trio.sleep(0.005)
            bodies = [TaskNotification.from_body(envelope.body).result for envelope in await tree.mail()]
            assert bodies[0] == "a door"
            assert "which colour?" in bodies[1]
            assert {e.incarnation for e in tree.events if e.state == "done"} == {1, 2}
            first, second = tree.served.requests
            assert second["usage"]["cache_read_input_tokens"] == first["usage"]["cache_creation_input_tokens"] > 0
            nursery.cancel_scope.cancel()


async def test_shutdown_request_is_for_one_incarnation_only(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, BUSY) as tree, trio.open_nursery() as nursery:
            (project / "go").touch()
            await tree.supervisor.run_agent(tree.agent_run("scout"))
            nursery.start_soon(
                tree.supervisor.run_agent, AgentRun(spec=attrs.evolve(tree.agent_spec("scout"), is_teammate=True))
            )
            await tree.until_state("scout", "idle")
            office = tree.supervisor.services.mail
            boss = Sender(name="main", incarnation=1, session=tree.session.id, kind="lead")
            old = Envelope(
                sender=boss,
                recipient=Recipient(name="scout", incarnation=1),
                sequence=1,
                kind="shutdown_request",
                body="{}",
                created=office.clock.now(),
            )
            await office.files.send(office.sign(old))
            await tree.write("scout", "still there?")
            while tree.states("scout").count("idle") < 2:  # noqa: ASYNC110 - the simplest reader there is
                await trio.sleep(0.005)
            assert [letter.reason for _, letter in office.dead_letters.pending()] == ["stale_incarnation"]
            nursery.cancel_scope.cancel()


async def test_a_budget_of_the_session_holds_in_every_process(project: Path) -> None:
    with trio.fail_after(60):
        async with open_root_harness(project, SCRIPT, budget=Decimal("0.0001")) as tree:
            await tree.supervisor.run_agent(tree.agent_run("scout"))
            report = (await tree.reports())["scout"]
            assert report.status == "blocked"
            assert "$0.0001" in report.summary
            assert tree.served.requests == []
