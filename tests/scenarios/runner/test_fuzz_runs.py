"""Teams under random faults: whatever goes wrong, they end as done or say why not, and nothing is lost or doubled."""

from pathlib import Path

import pytest

from coterie.scenarios.command import summarize_trials
from coterie.scenarios.runner.fuzz.fuzz_runs import find_targets, run_plans
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.scenario_result import run_repeatedly
from tests.record_property import RecordProperty

pytestmark = pytest.mark.slow

STORIES = ["coordinator", "plan-approval"]
MINUTES = 60.0
FEW = 2
"""Plans for each scenario in every run of the tests."""
MANY = 50
FAILED_START = """
name: failed-before-its-first-call
about: An agent that failed before its first model call gets its task again with the next message.
task: Count the beans.
script:
  main:
    - when: {heard: 'status="failed"', unheard: Stored for ada}
      tools: [{SendMessage: {to: ada, message: Try again.}}]
    - when: {unheard: ada is running as a teammate}
      tools: [{Agent: {name: ada, description: count, prompt: Count the beans in the bag., stays: true}}]
    - {text: I wait for ada., times: always}
  ada:
    - when: {heard: Count the beans in the bag}
      text: There are seven.
      times: always
faults:
  - {do: disk_full, target: ada, files: agents/ada/transcript.jsonl}
expect:
  - exit_code: 0
  - event: {kind: finished, agent: ada, result: There are seven.}
  - mail: {exactly_once: true}
"""
AT_ONCE = 10
"""Plans in one test of the long version, so that several processes share them."""


def check(name: str, seeds: range, record_property: RecordProperty) -> None:
    """Run the plans of *seeds*, and print their number and the applied faults."""
    scenario = load_scenario(Path(__file__).parent / f"{name}.yaml")
    trials = list(run_plans(scenario, find_targets(scenario), seeds))
    record_property("counted", f"{name}, seeds {seeds.start} to {seeds.stop - 1}: {summarize_trials(trials)}")
    failed = {trial.plan.seed: [failure.reason for failure in trial.failures] for trial in trials if trial.failures}
    assert failed == {}


@pytest.mark.timeout(10 * MINUTES)
@pytest.mark.parametrize("name", STORIES)
def test_a_team_survives_random_faults(name: str, record_property: RecordProperty) -> None:
    check(name, range(FEW), record_property)


@pytest.mark.timeout(10 * MINUTES)
def test_agent_that_failed_before_its_first_call_gets_its_task_again(tmp_path: Path) -> None:
    path = tmp_path / "failed-start.yaml"
    path.write_text(FAILED_START)
    result = run_repeatedly(load_scenario(path), seed=0, repeat=1)
    assert [failure.reason for failure in result.failures] == []


@pytest.mark.soak
@pytest.mark.timeout(30 * MINUTES)
@pytest.mark.parametrize("first", range(FEW, FEW + MANY, AT_ONCE))
@pytest.mark.parametrize("name", STORIES)
def test_a_team_survives_many_random_faults(name: str, first: int, record_property: RecordProperty) -> None:
    check(name, range(first, first + AT_ONCE), record_property)
