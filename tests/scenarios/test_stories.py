"""The scenarios that ship: each is played as a user would play it, and ends as it says; played again, it goes alike."""

from pathlib import Path

import pytest

from coterie.scenarios.runner.expectations import ExitCode, NothingLeft
from coterie.scenarios.runner.library import load_all, shipped
from coterie.scenarios.runner.outcome import play_story
from coterie.scenarios.runner.reading import load_story
from coterie.scenarios.runner.story import Story

SEED = 0
AGAIN = 3
"""Plays whose canonical logs must be equal."""
FEWEST = 16
LONGEST_ABOUT = 140
"""Characters: `coterie scenario list` shows it on a line."""
TIMEOUT = 300
"""Seconds, for a machine that does other things too; each story has a limit of its own."""

stories = pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)


def check(story: Story, repeat: int) -> None:
    """Play *story* so often, and say what did not go as it must."""
    outcome = play_story(story, SEED, repeat=repeat)
    assert [failure.reason for failure in outcome.failures] == []
    assert outcome.plays == repeat
    assert outcome.log


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT)
@stories
def test_a_story_ends_as_it_says(path: Path) -> None:
    check(load_story(path), repeat=1)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(AGAIN * TIMEOUT)
@stories
def test_a_story_goes_alike_each_time(path: Path) -> None:
    check(load_story(path), repeat=AGAIN)


def test_enough_is_told_and_each_story_says_what_it_is_about_and_what_must_come_of_it() -> None:
    told = load_all()
    assert len(told) >= FEWEST
    for story in told:
        assert story.name == story.source.stem
        assert 0 < len(story.about) <= LONGEST_ABOUT, story.name
        kinds = [type(each) for each in story.expectations]
        assert {ExitCode, NothingLeft} <= set(kinds), story.name
        # The exit code, the limit in dollars and that nothing is left say nothing about the tale itself.
        assert len(kinds) > 5, story.name
        assert story.limits.dollars is not None, story.name
        assert story.limits.seconds <= TIMEOUT / 2, story.name
