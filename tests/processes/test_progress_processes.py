"""Progress summaries of real processes, seen from outside while they run."""

from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.settings import Settings
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.supervisor.agent_run import AgentRun
from tests.processes.root_harness import RootHarness, open_root_harness

pytestmark = pytest.mark.slow

SCRIPT = """
boss:
  - tools: [{Bash: {command: "true"}}]
  - tools: [{Agent: {description: "d", prompt: "p", subagent_type: near, name: guest}}]
  - text: It is done.
  - {purpose: summary, text: Sharing out the work, times: always}
guest:
  - tools: [{Bash: {command: "true"}}]
  - {text: I have seen it., until: seen}
  - {purpose: summary, text: Reading run_agent.py, times: always}
"""
KIND = "---\nname: near\ndescription: Works nearby.\nprocess: shared\n---\nYou work nearby.\n"


async def test_agent_and_in_process_agent_have_separate_progress(project: Path) -> None:
    (project / ".coterie/agents").mkdir(parents=True)
    (project / ".coterie/agents/near.md").write_text(KIND)
    settings = {"permissions.mode": "bypassPermissions", "progress.enabled": True, "progress.every": 0.1}
    with trio.fail_after(60):
        async with open_root_harness(project, SCRIPT) as tree, trio.open_nursery() as nursery:
            order = AgentRun(spec=attrs.evolve(tree.agent_spec("boss"), settings=Settings.build(settings, {})))
            nursery.start_soon(tree.supervisor.run_agent, order)
            await _seen(tree, {"boss": "Sharing out the work", "guest": "Reading run_agent.py"})
            tree.served.server.control.signals.raise_signal("seen")
        lines = read_ledger(tree.session.directory / LEDGER).lines
        assert {line.agent for line in lines if line.purpose == "summary"} == {"boss", "guest"}
        # Ended agents have no progress.
        assert not any(agent.progress for agent in read_overview(tree.session).agents)


async def _seen(tree: RootHarness, expected: dict[str, str]) -> None:
    def shown() -> dict[str, str]:
        return {
            agent.name: agent.progress for agent in read_overview(tree.session).agents if agent.progress is not None
        }

    while await trio.to_thread.run_sync(shown) != expected:  # noqa: ASYNC110 - the simplest reader there is
        await trio.sleep(0.01)
