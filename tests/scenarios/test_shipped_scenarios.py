"""The shipped scenarios pass, and repeated runs have equal logs."""

from pathlib import Path

import pytest

from coterie.scenarios.runner.expectations import ExitCodeIs, NothingLeft
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario, load_shipped, shipped_files
from coterie.scenarios.runner.scenario import Scenario
from coterie.scenarios.runner.scenario_result import run_repeatedly

SEED = 0
AGAIN = 3
"""Number of runs whose canonical logs must be equal."""
FEWEST = 16
LONGEST_ABOUT = 140
"""Maximum length, so that `coterie scenario list` prints it on one line."""
TIMEOUT = 300
"""Timeout in seconds on a loaded machine; each scenario has its own limit."""

stories = pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)


def check(scenario: Scenario, repeat: int) -> None:
    """Run *scenario* *repeat* times and check that it passes."""
    result = run_repeatedly(scenario, SEED, repeat=repeat)
    assert [failure.reason for failure in result.failures] == []
    assert result.runs == repeat
    assert result.log


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@stories
def test_shipped_scenario_passes(path: Path) -> None:
    check(load_scenario(path), repeat=1)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(AGAIN * TIMEOUT)
@stories
def test_shipped_scenario_is_repeatable(path: Path) -> None:
    check(load_scenario(path), repeat=AGAIN)


def test_every_shipped_scenario_has_a_description_limits_and_expectations() -> None:
    shipped = load_shipped()
    assert len(shipped) >= FEWEST
    for scenario in shipped:
        assert scenario.name == scenario.source.stem
        assert 0 < len(scenario.about) <= LONGEST_ABOUT, scenario.name
        kinds = [type(each) for each in scenario.expectations]
        assert {ExitCodeIs, NothingLeft} <= set(kinds), scenario.name
        # Exit code, cost limit and NothingLeft do not test the scenario's subject.
        assert len(kinds) > 5, scenario.name
        assert scenario.limits.dollars is not None, scenario.name
        assert scenario.limits.seconds <= TIMEOUT / 2, scenario.name
