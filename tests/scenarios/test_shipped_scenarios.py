"""The scenarios that ship: each is played as a user would play it, and ends as it says; played again, it goes alike."""

from pathlib import Path

import pytest

from coterie.scenarios.runner.expectations import ExitCodeIs, NothingLeft
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario, load_shipped, shipped_files
from coterie.scenarios.runner.scenario import Scenario
from coterie.scenarios.runner.scenario_result import run_repeatedly

SEED = 0
AGAIN = 3
"""Plays whose canonical logs must be equal."""
FEWEST = 16
LONGEST_ABOUT = 140
"""Characters: `coterie scenario list` shows it on a line."""
TIMEOUT = 300
"""Seconds, for a machine that does other things too; each story has a limit of its own."""

stories = pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)


def check(story: Scenario, repeat: int) -> None:
    """Play *story* so often, and say what did not go as it must."""
    outcome = run_repeatedly(story, SEED, repeat=repeat)
    assert [failure.reason for failure in outcome.failures] == []
    assert outcome.runs == repeat
    assert outcome.log


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@stories
def test_a_story_ends_as_it_says(path: Path) -> None:
    check(load_scenario(path), repeat=1)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(AGAIN * TIMEOUT)
@stories
def test_a_story_goes_alike_each_time(path: Path) -> None:
    check(load_scenario(path), repeat=AGAIN)


def test_every_shipped_scenario_has_a_description_limits_and_expectations() -> None:
    told = load_shipped()
    assert len(told) >= FEWEST
    for story in told:
        assert story.name == story.source.stem
        assert 0 < len(story.about) <= LONGEST_ABOUT, story.name
        kinds = [type(each) for each in story.expectations]
        assert {ExitCodeIs, NothingLeft} <= set(kinds), story.name
        # The exit code, the limit in dollars and that nothing is left say nothing about the tale itself.
        assert len(kinds) > 5, story.name
        assert story.limits.dollars is not None, story.name
        assert story.limits.seconds <= TIMEOUT / 2, story.name
