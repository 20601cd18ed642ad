"""Agents that crash or hang are resumed from their transcripts; agents that the user stops are not resumed."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from coterie.mailbox.errors import RecipientEnded
from coterie.mailbox.message_bodies import TaskNotification
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, ProcessStarter, StartFailed
from coterie.orchestrator.supervisor.agent_process import ORPHANS_TIMEOUT
from coterie.orchestrator.supervisor.agent_run import NotRunning, RestartPolicy
from coterie.orchestrator.supervisor.root_services import ProcessLimits
from tests.processes.root_harness import RootHarness, open_root_harness
from tests.processes.session_record import conversation

AT_ONCE = RestartPolicy(limit=2, first_wait=0.01)
SCRIPT = """
scout:
  - tools: [{Bash: {command: "echo ran >> ran.txt; until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "I see {{last_tool_result}} and {{last_user_text}}"}
"""

pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class SignallingStarter:
    """Starter of real children that sends a signal to the first ones immediately."""

    starter: ProcessStarter
    signals: list[signal.Signals]

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        child = await self.starter.start(start, descriptors, stdout=stdout, stderr=stderr)
        if self.signals:
            child.send_signal(self.signals.pop())
        return child


def send_at_start(tree: RootHarness, signals: list[signal.Signals]) -> None:
    """Send *signals* to the next processes immediately after their start."""
    services = tree.supervisor.services
    starter = SignallingStarter(services.starter, signals)
    tree.supervisor.services = attrs.evolve(services, starter=starter)


async def test_killed_agent_is_resumed_and_repeats_no_call(project: Path) -> None:
    async with open_root_harness(project, SCRIPT) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = AT_ONCE
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("scout"))
        await tree.until_shell_runs("scout")
        await tree.write("scout", "look behind the door")
        os.kill(tree.pid("scout"), signal.SIGKILL)
        await tree.until_state("scout", "done")
        report = (await tree.reports())["scout"]
        assert report.status == "completed"
        assert "interrupted before this call had a result" in report.result
        assert "look behind the door" in report.result, "mail that waited reaches the next start"
        assert (project / "ran.txt").read_text() == "ran\n"
        assert tree.states("scout") == ["starting", "running", "killed", "starting", "running", "done"]
        again = [(e.incarnation, e.what) for e in tree.events if e.state == "starting"]
        assert again == [(1, ""), (2, "again, 1 of 2: Its process was ended by SIGKILL.")]
        assert tree.root.gateway.accounts.session.reserved == 0
        assert tree.supervisor.running == set()


async def test_agent_that_crashes_repeatedly_is_reported_as_failed(project: Path) -> None:
    async with open_root_harness(project, SCRIPT) as tree:
        tree.supervisor.restarts = AT_ONCE
        send_at_start(tree, [signal.SIGKILL] * 9)
        outcome = await tree.supervisor.run_agent(tree.agent_run("scout"))
        assert (outcome.end, outcome.incarnation) == ("killed", 3)
        [(sender, report)] = (await tree.reports()).items()
        assert (sender, report.status) == ("root", "killed")
        assert report.summary == "It was started 3 times. Its process was ended by SIGKILL."
        assert tree.states("scout") == ["starting", "killed"] * 3
        assert tree.supervisor.services.mail.roster.members()["scout"].state == "ended"


async def test_last_reply_before_a_crash_is_reported_after_it(project: Path) -> None:
    """An agent that died between its last reply and its report only has to report."""
    async with open_root_harness(project, 'scout: [{text: "a door"}]') as tree:
        await tree.supervisor.run_agent(tree.agent_run("scout"))
        await tree.supervisor.run_agent(tree.agent_run("scout", ""))
        reports = [TaskNotification.from_body(envelope.body) for envelope in await tree.mail()]
        assert [(report.status, report.result) for report in reports] == [("completed", "a door")] * 2
        assert len(tree.served.requests) == 1


DELEGATING = """
boss:
  - tools:
      - Agent: {description: "wait", prompt: "wait", name: left}
      - Agent: {description: "wait", prompt: "wait", name: right}
  - {text: "I was told {{last_user_text}}", times: always}
default:
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.05; done"}}]
  - {text: "I went on"}
"""


async def test_subagents_survive_a_crash_of_their_parent_and_report_later(project: Path) -> None:
    async with open_root_harness(project, DELEGATING, grace=0.3) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = AT_ONCE
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        for name in ("left", "right"):
            await tree.until_shell_runs(name)
        os.kill(tree.pid("boss"), signal.SIGKILL)
        await tree.until_state("boss", "waiting")
        (project / "go").touch()
        await tree.until_state("boss", "done")
        report = (await tree.reports())["boss"]
        assert report.status == "completed"
        assert "<task-notification" in report.result
        assert {e.incarnation for e in tree.events if e.name in ("left", "right")} == {1}
        said = _texts_for(tree, "boss")
        assert len([text for text in said if "had a result" in text]) == 2, "both open calls are answered"
        assert len([text for text in said if "that you had started continued to run: left, right" in text]) == 1
        assert sum(text.count('status=\\"completed\\"') for text in said) == 2
        assert sum(text.count("I went on") for text in said) == 2


def _texts_for(tree: RootHarness, name: str) -> list[str]:
    segments = conversation(tree.session, name).segments
    return [segment.data.decode() for segment in segments if segment.role == "user"]


async def test_hanging_agent_is_killed_and_resumed(project: Path) -> None:
    async with (
        open_root_harness(project, 'scout: [{text: "a door"}]', grace=0.1) as tree,
        trio.open_nursery() as nursery,
    ):
        tree.supervisor.restarts = AT_ONCE
        tree.supervisor.limits = ProcessLimits(grace=0.1, stall_after=0.2)
        send_at_start(tree, [signal.SIGSTOP])
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("scout"))
        await tree.until_state("scout", "stalled")
        tree.supervisor.limits = ProcessLimits(grace=0.1, stall_after=600.0)
        await tree.until_state("scout", "done")
        assert (await tree.reports())["scout"].result == "a door"
        states = ["starting", "stalled", "stopping", "killed", "starting", "running", "done"]
        assert tree.states("scout") == states


SLEEPING = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
  - {text: "It says {{last_tool_result}}"}
sleeper:
  - tools: [{Bash: {command: "sleep 600 & sleep 600"}}]
"""


async def test_parent_continues_after_its_subagent_was_stopped(project: Path) -> None:
    async with open_root_harness(project, SLEEPING, grace=0.3) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_shell_runs("sleeper")
        shells = psutil.Process(tree.pid("sleeper")).children(recursive=True)
        await tree.supervisor.stop("sleeper")
        assert not [shell for shell in shells if shell.is_running() and shell.status() != psutil.STATUS_ZOMBIE]
        await tree.until_state("boss", "done")
        result = (await tree.reports())["boss"].result
        assert "sleeper has ended. Status: killed." in result
        assert "the user stopped it." in result
        assert tree.states("sleeper") == ["starting", "running", "stopping", "done"]
        assert [e.what for e in tree.events if e.name == "sleeper"][-1] == "The user stopped it."
        await _assert_mail_refused(tree, "sleeper")


async def test_subagents_of_a_stopped_agent_end_with_it(project: Path) -> None:
    async with open_root_harness(project, SLEEPING, grace=0.3) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss", is_kept=True))
        await tree.until_shell_runs("sleeper")
        below = [psutil.Process(tree.pid(name)) for name in ("boss", "sleeper")]
        await tree.supervisor.stop("boss", by="the lead")
        assert not [process for process in below if process.is_running()]
        assert (tree.supervisor.runs, tree.supervisor.running) == ({}, set())
        assert (await tree.reports())["boss"].summary.endswith("the lead stopped it.")
        for name in ("boss", "sleeper"):
            await _assert_mail_refused(tree, name)


async def test_agent_that_ignores_a_stop_is_killed_and_not_restarted(project: Path) -> None:
    async with open_root_harness(project, SLEEPING, grace=0.1) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("sleeper"))
        await tree.until_shell_runs("sleeper")
        os.kill(tree.pid("sleeper"), signal.SIGSTOP)
        await tree.supervisor.stop("sleeper")
        assert tree.states("sleeper") == ["starting", "running", "stopping", "killed"]
        [report] = (await tree.reports()).values()
        assert report.summary == "The user stopped it. Its process was ended by SIGKILL."


async def test_kill_immediately_ends_the_grace_of_a_running_stop(project: Path) -> None:
    async with open_root_harness(project, SLEEPING, grace=90.0) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("sleeper"))
        await tree.until_shell_runs("sleeper")
        os.kill(tree.pid("sleeper"), signal.SIGSTOP)
        assert tree.supervisor.stop_time == 0
        nursery.start_soon(tree.supervisor.stop, "sleeper")
        await tree.until_state("sleeper", "stopping")
        assert 90 < tree.supervisor.stop_time <= 180 + ORPHANS_TIMEOUT
        tree.supervisor.kill_immediately()
        assert tree.supervisor.stop_time <= ORPHANS_TIMEOUT
        await tree.until_state("sleeper", "killed")
        assert tree.supervisor.stop_time == 0


async def test_stopped_finished_agent_is_not_resumed(project: Path) -> None:
    async with open_root_harness(project, 'scout: [{text: "a door"}]') as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("scout", is_kept=True))
        await tree.until_state("scout", "done")
        await tree.supervisor.stop("scout")
        await _assert_mail_refused(tree, "scout")
        with pytest.raises(NotRunning, match="'scout' is not running; there is none"):
            await tree.supervisor.stop("scout")


async def test_agent_stopped_before_its_start_is_never_started(project: Path) -> None:
    async with open_root_harness(project, SLEEPING) as tree:
        with pytest.RaisesGroup(StartFailed, flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("sleeper"))
                await trio.testing.wait_all_tasks_blocked()
                await tree.supervisor.stop("sleeper")
        assert await tree.mail() == []
        await _assert_mail_refused(tree, "sleeper")


async def _assert_mail_refused(tree: RootHarness, name: str) -> None:
    with pytest.raises(RecipientEnded, match="has ended"):
        await tree.write(name, "are you there?")
