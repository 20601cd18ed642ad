"""A coordinator may only delegate; the limit does not apply to its workers and forks."""

from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.events.agent_events import RunStarted
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.session_directory import COORDINATOR, MAIN, TRANSCRIPT
from tests.processes.root_harness import RootHarness, open_root_harness

pytestmark = pytest.mark.slow

LEADING = """
main:
  - tools:
      - Write: {file_path: own.txt, content: "by the lead"}
      - Edit: {file_path: given.txt, old_string: given, new_string: taken}
      - Bash: {command: "touch own.txt"}
  - tools:
      - Agent: {description: "write", prompt: "Write.", name: worker, subagent_type: worker, run_in_background: true}
      - Agent: {description: "idle", prompt: "Idle.", name: idler, subagent_type: worker, run_in_background: true}
  - {text: "Two are at work."}
  - tools:
      - SendMessage: {to: worker, message: "And b, please."}
      - TaskStop: {name: idler}
      - TaskStop: {name: wroker}
  - {text: "I heard {{last_user_text}}", times: always}
worker:
  - tools: [{Read: {file_path: given.txt}}]
  - tools:
      - TaskStop: {name: idler}
      - Edit: {file_path: given.txt, old_string: given, new_string: changed}
      - Bash: {command: "echo found > $COTERIE_SCRATCH/notes.md; until [ -e idle ]; do sleep 0.05; done"}
  - {text: "It is changed."}
  - tools: [{Write: {file_path: b.txt, content: "b"}}, {Bash: {command: "cat $COTERIE_SCRATCH/notes.md"}}]
  - {text: "So is b, and there is: {{tool_result.1}}"}
idler:
  - tools: [{Bash: {command: "touch idle; sleep 600"}}]
"""


def texts_for(tree: RootHarness, name: str) -> str:
    """Return all text that *name* received, including results of its calls."""
    loaded = load_transcript(tree.session.directory / "agents" / name / TRANSCRIPT).conversation
    assert loaded is not None
    return "\n".join(segment.data.decode() for segment in loaded.segments if segment.role == "user").replace('\\"', '"')


async def coordinate(tree: RootHarness) -> None:
    order = AgentRun(spec=attrs.evolve(tree.agent_spec(MAIN), parent=None, definition=COORDINATOR))
    outcome = await tree.supervisor.run_agent(order)
    assert outcome.end == "done"


async def test_coordinator_delegates_resumes_a_worker_and_stops_another(project: Path) -> None:
    (project / "given.txt").write_text("given")
    with trio.fail_after(90):
        async with open_root_harness(project, LEADING) as tree:
            await coordinate(tree)
            told = list(read_session(tree.session.directory))
            lead, worker = texts_for(tree, MAIN), texts_for(tree, "worker")

            assert not (project / "own.txt").exists()
            assert (project / "given.txt").read_text() == "changed"
            assert (project / "b.txt").read_text() == "b"
            assert lead.count("Agents of the type coordinator may not do this.") == 3
            tools = {
                observed.agent: observed.event.tools for observed in told if isinstance(observed.event, RunStarted)
            }
            assert tools[MAIN] == tools["worker"], "what is denied stays in the request"

            assert lead.count('agent="worker" from="worker" sender="peer" status="completed"') == 2
            assert "So is b, and there is: found" in lead
            assert tree.states("worker").count("starting") == 2, "it was taken up again from its transcript"
            assert "And b, please." in worker
            assert "You have no running agent 'idler' to stop" in worker, "it has not started it"
            assert lead.count('status="killed"') == 1
            assert lead.count('agent="idler"') == 1
            assert "did you mean worker?" in lead


async def test_a_fork_of_a_coordinator_can_write_files(project: Path) -> None:
    script = """
main:
  - tools: [{Write: {file_path: "own.txt", content: "by the lead"}}]
  - tools: [{Agent: {description: "write", prompt: "write it", subagent_type: fork, name: part}}]
  - {text: "I was told: {{last_user_text}}", times: always}
part:
  - tools: [{Write: {file_path: "a.txt", content: "by a fork"}}]
  - {text: "It said: {{last_tool_result}}"}
"""
    with trio.fail_after(60):
        async with open_root_harness(project, script) as tree:
            await coordinate(tree)
            assert (project / "a.txt").read_text() == "by a fork"
            assert not (project / "own.txt").exists()
            assert 'agent="part"' in texts_for(tree, MAIN)
