"""A story may have further sessions: they are checked as the first is, and their agents are told apart by its name."""

from pathlib import Path

import pytest

from coterie.agents.events import AgentChanged
from coterie.orchestrator.session import Session
from coterie.scenarios.runner.beside import event_of, passage_of
from coterie.scenarios.runner.commands import begin_command
from coterie.scenarios.runner.expectations import MailOnce, StateIs
from coterie.scenarios.runner.flaws import StoryInvalid
from coterie.scenarios.runner.reading import load_story
from coterie.scenarios.runner.stage import open_stage
from coterie.scenarios.runner.story import HumanAct
from tests.scenarios.runner.written_stories import WHOLE, passage, played, seen, write_story

CAFE = """
sessions:
  cafe:
    task: Write to {{session}}.
    script: {main: [Written.]}
"""


def test_another_session_is_begun_by_a_step_or_by_the_human_and_its_agents_bear_its_name(tmp_path: Path) -> None:
    more = """
  - state: {cafe/main: done}
steps: [run, begin: cafe]
human:
  - {when: {kind: started, agent: scout}, do: begin, session: cafe}
  - {when: {kind: finished, agent: cafe/main}, do: release}
"""
    story = load_story(write_story(tmp_path, WHOLE.rstrip() + more + CAFE))
    assert [(step.deed, step.to) for step in story.steps] == [("run", ""), ("begin", "cafe")]
    begin, release = story.acts
    assert isinstance(begin, HumanAct)
    assert isinstance(release, HumanAct)
    assert (begin.deed, begin.session) == ("begin", "cafe")
    assert (release.deed, release.session) == ("release", "")
    with open_stage(story, 0, is_kept=False) as stage:
        before = Session.create(stage.project, stage.clock, task="Look.", model="opus")
        command = begin_command("cafe", story, stage, before)
        assert f"Write to {before.id}." in command
        assert stage.script_of("cafe").read_text() != stage.script.read_text()
        assert str(stage.script_of("cafe")) in command


@pytest.mark.parametrize(
    ("more", "line", "reason"),
    [
        ("steps: [run, begin: cave]", 15, "there is no session 'cave'; did you mean 'cafe'?"),
        ("steps: [begin: cafe]", 15, "the first step is begin; without a run there is no session yet"),
        ("human: [{when: {kind: started}, do: begin}]", 15, "begin needs 'session': one of those below `sessions`"),
        ("human: [{when: {kind: started}, do: release, session: bar}]", 15, "there is no session 'bar'"),
        ("faults: [{when: {kind: started, agent: cafe/mian}, do: kill, target: scout}]", 15, "there will be no agent"),
        ("  bar: {task: Drink.}", 15, "the session 'bar' has no 'script'"),
        ("  bar: {task: Drink., script: {waiter: [Yes.]}}", 15, "the script has replies for neither main nor default"),
    ],
)
def test_what_is_wrong_with_another_session_is_told_with_its_line(
    tmp_path: Path, more: str, line: int, reason: str
) -> None:
    with pytest.raises(StoryInvalid) as caught:
        load_story(write_story(tmp_path, WHOLE + CAFE + more + "\n"))
    [flaw] = caught.value.flaws
    assert flaw.line == line
    assert reason in flaw.reason


def test_an_agent_of_another_session_is_not_taken_for_one_of_the_first(tmp_path: Path) -> None:
    mine = seen("root", "agent_changed", name="main", incarnation=1, state="done")
    other = event_of("cafe", seen("root", "agent_changed", name="main", incarnation=1, state="failed", parent="boss"))
    assert isinstance(other.event, AgentChanged)
    assert (other.agent, other.event.name, other.event.parent) == ("cafe/root", "cafe/main", "cafe/boss")
    assert other.members["name"] == "cafe/main"
    assert event_of("", mine) is mine
    both = played(tmp_path, mine, other, states={"main": "done", "cafe/main": "failed"})
    assert StateIs(line=1, agent="main", state="done").judge(both) == []
    assert StateIs(line=1, agent="cafe/main", state="done").judge(both) != []


def test_mail_that_the_other_session_got_is_not_missing_in_the_first(tmp_path: Path) -> None:
    there = [passage_of("cafe", passage("stored", 1)), passage_of("cafe", passage("delivered", 1))]
    assert MailOnce(line=1).judge(played(tmp_path, mail=there)) == []
    assert MailOnce(line=1).judge(played(tmp_path, mail=[there[0], passage("delivered", 1)])) != []


def test_what_was_written_to_an_agent_after_its_end_is_not_lost(tmp_path: Path) -> None:
    letter = passage("stored", 1)
    early, late = (seen("main", "finished", at=letter.at + by) for by in (-1.0, 1.0))
    assert MailOnce(line=1).judge(played(tmp_path, early, mail=[letter])) == []
    assert MailOnce(line=1).judge(played(tmp_path, late, mail=[letter])) != []
