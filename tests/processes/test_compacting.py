"""The root has an agent's process compact its conversation: while it waits, at its end, and when it cannot any more."""

import os
import signal
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.tree.compacting import NO_PROCESS, compact_agent
from coterie.orchestrator.tree.compactor import GONE
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.restarting import NO_RESTARTS
from coterie.orchestrator.tree.tenure import NotAtWork
from tests.processes.trees import Tree, open_tree

pytestmark = pytest.mark.slow

SUMMARY = """
default:
  - {purpose: compaction, times: always, text: "<summary>Went well.</summary>"}
"""


def order(tree: Tree, name: str) -> Order:
    """An agent that keeps little of the end of its conversation."""
    values = {
        "permissions.mode": "bypassPermissions",
        "layers.compaction.keep_least": 1,
        "layers.compaction.keep_texts": 1,
    }
    return attrs.evolve(tree.order(name), settings=Settings.build(values, {}))


async def compact(tree: Tree, name: str) -> Compaction | NotCompacted:
    return await compact_agent(tree.supervisor.tenures, name, None)


async def test_an_agent_that_waits_for_others_is_compacted_meanwhile(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Agent: {{description: look, prompt: look, name: scout, run_in_background: true}}}}]
  - text: I wait.
  - text: "I heard {{{{last_user_text}}}}"
scout:
  - tools: [{{Bash: {{command: "while [ ! -e go ]; do sleep 0.02; done"}}}}]
  - text: Nothing there.
{SUMMARY}"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, order(tree, "boss"))
            await tree.reached("boss", "waiting")
            done = await compact(tree, "boss")
            assert isinstance(done, Compaction)
            assert (done.by, done.left, done.kept) == ("summary", 3, 1)
            assert tree.states("boss")[-1] == "waiting"
            (project / "go").touch()
            await tree.reached("boss", "done")
            reports = await tree.reports()
            assert "Nothing there." in reports["boss"].result


async def test_what_is_asked_for_in_the_last_turn_is_done_before_the_end(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Bash: {{command: "echo one"}}}}]
  - {{until: asked, text: That was it.}}
{SUMMARY}"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree, trio.open_nursery() as nursery:
            nursery.start_soon(tree.supervisor.run_agent, order(tree, "boss"))
            signals = tree.served.server.control.signals
            while not signals.awaited:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
            async with trio.open_nursery() as asking:

                async def ask() -> None:
                    assert isinstance(await compact(tree, "boss"), Compaction)

                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked(0.05)
                signals.raise_signal("asked")
            await tree.reached("boss", "done")
            assert [entry["purpose"] for entry in tree.served.requests] == ["turn", "turn", "compaction"]


async def test_who_has_died_has_gone_or_has_no_process_is_not_compacted(project: Path) -> None:
    script = f"""
boss:
  - tools: [{{Bash: {{command: "touch begun; sleep 300"}}}}]
kept:
  - text: That was it.
{SUMMARY}"""
    with trio.fail_after(60):
        async with open_tree(project, script) as tree, trio.open_nursery() as nursery:
            tree.supervisor.restarts = NO_RESTARTS
            nursery.start_soon(tree.supervisor.keep_agent, order(tree, "kept"))
            await tree.reached("kept", "done")
            assert await compact(tree, "kept") == NotCompacted(call=0, reason=NO_PROCESS)
            nursery.start_soon(tree.supervisor.run_agent, order(tree, "boss"))
            await tree.at_work("boss")
            async with trio.open_nursery() as asking:

                async def ask() -> None:
                    answer = await compact(tree, "boss")
                    assert isinstance(answer, NotCompacted)
                    assert answer.reason == GONE

                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                os.kill(tree.pid("boss"), signal.SIGKILL)
            await tree.reached("boss", "killed")
            while "boss" in tree.supervisor.tenures:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.01)
            with pytest.raises(NotAtWork, match="'boss' is not at work"):
                await compact(tree, "boss")
            nursery.cancel_scope.cancel()
