"""An agent that the user stops ends with its descendants, its parent is notified, and no message resumes it."""

import os
import signal
from pathlib import Path

import psutil
import pytest
import trio

from coterie.mailbox.errors import RecipientEnded
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_process import ORPHANS_TIMEOUT
from coterie.orchestrator.supervisor.agent_run import NotRunning
from tests.processes.root_harness import RootHarness, open_root_harness

SCRIPT = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
  - {text: "It says {{last_tool_result}}"}
sleeper:
  - tools: [{Bash: {command: "sleep 600 & sleep 600"}}]
"""

pytestmark = pytest.mark.slow


async def test_parent_continues_after_its_subagent_was_stopped(project: Path) -> None:
    async with open_root_harness(project, SCRIPT, grace=0.3) as tree, trio.open_nursery() as nursery:
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
    async with open_root_harness(project, SCRIPT, grace=0.3) as tree, trio.open_nursery() as nursery:
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
    async with open_root_harness(project, SCRIPT, grace=0.1) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("sleeper"))
        await tree.until_shell_runs("sleeper")
        os.kill(tree.pid("sleeper"), signal.SIGSTOP)
        await tree.supervisor.stop("sleeper")
        assert tree.states("sleeper") == ["starting", "running", "stopping", "killed"]
        [report] = (await tree.reports()).values()
        assert report.summary == "The user stopped it. Its process was ended by SIGKILL."


async def test_kill_immediately_ends_the_grace_of_a_running_stop(project: Path) -> None:
    async with open_root_harness(project, SCRIPT, grace=90.0) as tree, trio.open_nursery() as nursery:
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
    async with open_root_harness(project, SCRIPT) as tree:
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
