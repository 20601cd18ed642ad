"""The root asks an agent process to compact its conversation: while it waits, at its end, and after its end."""

import os
import signal
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.root_link.job_messages import AGENT_GONE, CompactionDone, NotCompacted
from coterie.agents.settings import Settings
from coterie.orchestrator.supervisor.agent_run import NO_PROCESS, NO_RESTARTS, AgentRun, NotRunning
from tests.processes.root_harness import RootHarness, open_root_harness

pytestmark = pytest.mark.slow

SUMMARY = """
default:
  - {purpose: compaction, times: always, text: "<summary>Went well.</summary>"}
"""


def order(tree: RootHarness, name: str) -> AgentRun:
    """An agent that keeps little of the end of its conversation."""
    values = {
        "permissions.mode": "bypassPermissions",
        "layers.compaction.keep_least": 1,
        "layers.compaction.keep_texts": 1,
    }
    return AgentRun(spec=attrs.evolve(tree.agent_spec(name), settings=Settings.build(values, {})))


async def compact(tree: RootHarness, name: str) -> CompactionDone | NotCompacted:
    return await tree.supervisor.runs.find(name).compact(None)


async def test_compaction_requested_in_the_last_turn_is_done_before_the_end(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Bash: {{command: "echo one"}}}}]
  - {{until: asked, text: That was it.}}
{SUMMARY}"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, order(tree, "boss"))
            signals = tree.served.server.control.signals
            while not signals.awaited:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
            async with trio.open_nursery() as asking:

                async def ask() -> None:
                    assert isinstance(await compact(tree, "boss"), CompactionDone)

                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked(0.05)
                signals.raise_signal("asked")
            await tree.until_state("boss", "done")
            assert [entry["purpose"] for entry in tree.served.requests] == ["turn", "turn", "compaction"]


async def test_agent_without_a_process_is_not_compacted(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Bash: {{command: "touch begun; sleep 300"}}}}]
kept:
  - text: That was it.
{SUMMARY}"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
            tree.supervisor.restarts = NO_RESTARTS
            nursery.start_soon(tree.supervisor.run_agent, attrs.evolve(order(tree, "kept"), is_kept=True))
            await tree.until_state("kept", "done")
            assert await compact(tree, "kept") == NotCompacted(reason=NO_PROCESS)
            nursery.start_soon(tree.supervisor.run_agent, order(tree, "boss"))
            await tree.until_shell_runs("boss")
            async with trio.open_nursery() as asking:

                async def ask() -> None:
                    answer = await compact(tree, "boss")
                    assert isinstance(answer, NotCompacted)
                    assert answer.reason == AGENT_GONE

                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                os.kill(tree.pid("boss"), signal.SIGKILL)
            await tree.until_state("boss", "killed")
            while "boss" in tree.supervisor.runs:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
            with pytest.raises(NotRunning, match="'boss' is not running"):
                await compact(tree, "boss")
            nursery.cancel_scope.cancel()
