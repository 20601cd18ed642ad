"""All processes of a team are killed at some moment; a resume finishes the work and repeats nothing."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.events.event_reader import ReplyRecorded, SessionEvent
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import EVERYTHING, ProcessFault, Scenario, ScenarioStep, Trigger

pytestmark = pytest.mark.slow

SEED = 8
STORY = load_scenario(find_scenario("coordinator"))
"""Agents that the lead starts, each for one task."""


def run_and_check(story: Scenario) -> tuple[ScenarioRun, list[str]]:
    """One run of *story*, with all deviations from its expectations."""
    with open_environment(story, SEED, is_kept=False) as stage:
        outcome, failures = trio.run(run_scenario, story, stage)
        failures += [failure for each in story.expectations for failure in each.check(outcome)]
        return outcome, [failure.reason for failure in failures]


def killed_at(point: SessionEvent, nth: int) -> Scenario:
    """Return the scenario with a kill of all processes at the *nth* event of a kind, and a resume."""
    moment = Trigger(pattern=EventPattern(kind=point.kind, members={"agent": point.agent}), nth=nth, line=0)
    return attrs.evolve(
        STORY,
        actions=(ProcessFault(when=moment, action="kill", target=EVERYTHING),),
        steps=(ScenarioStep(action="run"), ScenarioStep(action="resume")),
        limits=attrs.evolve(STORY.limits, seconds=120.0),
    )


def points(events: Sequence[SessionEvent], count: int) -> list[tuple[SessionEvent, int]]:
    """Return moments drawn from an undisturbed run: an event, and its count so far."""
    told = Counter[tuple[str, str]]()
    every = []
    for observed in events:
        told[observed.agent, observed.kind] += 1
        every.append((observed, told[observed.agent, observed.kind]))
    # After the last reply of the last worker, the lead may finish before it is killed.
    every = every[: max(at for at, (one, _) in enumerate(every) if _is_of_worker(one))]
    return random.Random(SEED).sample(every, count)


def _is_of_worker(observed: SessionEvent) -> bool:
    return observed.kind == "message" and observed.agent != "main"


def reports(outcome: ScenarioRun) -> Counter[str]:
    """Count how often each worker finished its task, by the replies of the model."""
    replies = ((each.agent, each.event) for each in outcome.events if each.agent != "main")
    return Counter(
        agent for agent, event in replies if isinstance(event, ReplyRecorded) and event.stop_reason == "end_turn"
    )


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(3, id="short", marks=pytest.mark.timeout(400)),
        pytest.param(30, id="long", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_team_finishes_and_repeats_nothing(count: int) -> None:
    undisturbed, failures = run_and_check(STORY)
    assert failures == []
    for point, nth in points(undisturbed.events, count):
        where = f"killed at the {nth}. {point.kind} of {point.agent}"
        outcome, failures = run_and_check(killed_at(point, nth))
        assert not failures, "\n".join([where, *failures, outcome.errors])
        assert reports(outcome) == reports(undisturbed), where
        print(f"{where}: resumed, and finished")  # noqa: T201 - the count is what the long version is for


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
    outcome, failures = run_and_check(story)
    assert failures == []
    assert "main" in {line.agent for line in outcome.ledger if line.is_estimated}
