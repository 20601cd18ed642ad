"""A session in a separate process: detached, attached, controlled from a shell, and killed."""

import json
import re
from pathlib import Path

import attrs
import pytest
import trio

from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import find_root
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.run_scenario import run_scenario
from tests.processes.project_shell import BYPASS, PATIENCE, ProjectShell

pytestmark = pytest.mark.slow


def run(place: ProjectShell, script: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments of a session whose model follows *script*."""
    return "run", "Go.", *place.model(script), *BYPASS, *arguments


WAITING = """
main:
  - tools: [{Agent: {description: look, prompt: Look., name: scout}}]
  - text: "I was told: {{last_tool_result}}"
  - text: "I heard: {{last_user_text}}"
scout:
  - tools: [{Bash: {command: "env -u COTERIE_AGENT COTERIE stop $COTERIE_SESSION main 2> s; mv s asked; sleep 300"}}]
  - text: It cannot be seen.
"""


def test_detached_session_takes_commands_from_the_user_but_not_from_an_agent(place: ProjectShell) -> None:
    script = WAITING.replace("COTERIE stop", " ".join(place.command("stop")))
    started = place.coterie(*run(place, script, "--detach", "-p"))
    session = place.session
    assert started.stdout.strip() == session.id
    assert place.becomes_true((place.project / "asked").exists)
    assert place.state("scout") == "running"

    busy = place.coterie("resume", session.id, *place.model(script))
    assert busy.stderr.startswith(f"Error: session: {session.id} is already running in process ")
    wrong = place.coterie("stop", session.id, "scuot")
    assert (wrong.returncode, wrong.stderr) == (2, "Error: agent: 'scuot' is not running; did you mean scout?\n")
    moved = place.coterie("background", session.id, "scout", "--json")
    assert json.loads(moved.stdout) == {"session": session.id, "agents": ["scout"]}
    assert place.becomes_true(lambda: place.state("main") == "waiting")
    stopped = place.coterie("stop", session.id, "scout")
    assert stopped.stdout == f"stopped scout of session {session.id}\n"

    assert place.becomes_true(lambda: find_root(session) is None)
    assert place.becomes_true(place.has_no_processes)
    logs = place.coterie("logs", session.id).stdout
    assert "The user moved scout to the background." in logs
    assert re.search(r"I heard: .*the user stopped it", re.sub(r"\s+", " ", logs))
    refusal = "Error: agent: only the user can send this request, not an agent\n"
    assert (place.project / "asked").read_text() == refusal
    assert place.becomes_true(lambda: place.coterie("doctor").returncode == 0)  # the cleanup daemon repairs the records


SLEEPING = 'default: [{text: I sleep., tools: [{Bash: {command: "sleep 300"}}]}, {text: I woke., times: always}]'


def test_session_ends_and_can_be_resumed_when_its_client_is_killed(place: ProjectShell) -> None:
    with place.start(*run(place, SLEEPING)) as viewer:
        assert viewer.stdout is not None
        assert viewer.stdout.readline() == "I sleep.\n"
        viewer.kill()
    session = place.session
    assert place.becomes_true(lambda: find_root(session) is None)
    assert place.becomes_true(place.has_no_processes)
    overview = read_overview(session)
    assert (overview.state, overview.reason) == ("ended", "cancelled")
    script = str(place.project.parent / "script.yaml")
    resumed = place.coterie("resume", session.id, "--script", script, "-p")
    assert (resumed.returncode, resumed.stdout) == (0, "I woke.\n")


def test_killed_root_is_reported_in_one_line(place: ProjectShell) -> None:
    with place.start(*run(place, SLEEPING, "-p")) as viewer:
        assert place.becomes_true(
            lambda: bool(list(place.project.parent.glob("home/projects/*/sessions/*/session.json")))
        )
        session = place.session
        assert place.becomes_true(lambda: place.state("main") == "running")
        place.kill_root()
        said, errors = viewer.communicate(timeout=PATIENCE)
    assert (viewer.returncode, said) == (1, "")
    reason, advice = "ended before its task was done: its process was killed.", f"`coterie resume {session.id}`"
    assert errors == f"Error: the session {reason} Continue with {advice}.\n"
    assert place.becomes_true(place.has_no_processes)
    assert place.becomes_true(lambda: place.coterie("doctor").returncode == 0)  # the cleanup daemon repairs the records


PENDING_CALL = """
about: The root is killed while a call is under way, of which nobody can say what it cost.
task: Say something.
model: opus
permission_mode: bypassPermissions
# Enough for the pending call of the lead, and for none after it; the worker costs little.
budget_usd: 0.40
workspace:
  files:
    .coterie/agents/waiter.md: "---\\nname: waiter\\ndescription: Waits.\\nmodel: haiku\\n---\\nYou wait.\\n"
steps: [run, resume]
script:
  main:
    - tools:
        - Agent: {name: worker, subagent_type: waiter, description: wait, prompt: Wait., run_in_background: true}
    - {text: Later., delay: 60, asked: lead-waits}
  worker:
    - {tools: [{Bash: {command: sleep 60}}], until: lead-waits}
    - I have waited.
faults:
  - when: {kind: tool_started, agent: worker}
    do: kill
    target: root
limits: {dollars: 0.40, seconds: 90}
expect:
  - exit_code: 3
  - event: {kind: finished, agent: main, reason: budget}
  - dollars: {at_least: 0.25}
"""


def test_budget_includes_unrecorded_calls_after_a_crash(tmp_path: Path) -> None:
    """The budget is given once at the start; its remainder does not allow another call after the resume."""
    path = tmp_path / "under-way.yaml"
    path.write_text(PENDING_CALL)
    story = attrs.evolve(load_scenario(path), resume_options=())
    with open_environment(story, seed=8, is_kept=False) as environment:
        outcome, failures = trio.run(run_scenario, story, environment)
        failures += [failure for each in story.expectations for failure in each.check(outcome)]
    assert [failure.reason for failure in failures] == []
    assert "main" in {line.agent for line in outcome.ledger if line.is_estimated}
