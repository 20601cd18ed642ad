"""The cost of a call that a crash interrupts counts against the budget of the session."""

from pathlib import Path

import attrs
import pytest
import trio

from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.run_scenario import run_scenario

pytestmark = pytest.mark.slow


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
