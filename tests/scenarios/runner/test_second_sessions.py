"""Second sessions of a scenario: their checks, and the names of their agents."""

from pathlib import Path

import pytest

from coterie.agents.events.root_events import AgentChanged
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.expectations import MailOnce, StateIs
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.scenario import UserAction
from coterie.scenarios.runner.user_commands import qualify_event, qualify_hop, second_session_command
from coterie.session_directory import SessionDirectory
from tests.scenarios.runner.scenario_samples import WHOLE, make_mail_step, make_run_record, seen, write_scenario

CAFE = """
sessions:
  cafe:
    task: Write to {{session}}.
    script: {main: [Written.]}
"""


def test_second_session_is_started_by_a_step_or_an_act_and_prefixes_its_agents(tmp_path: Path) -> None:
    more = """
  - state: {cafe/main: done}
steps: [run, begin: cafe]
human:
  - {when: {kind: started, agent: scout}, do: begin, session: cafe}
  - {when: {kind: finished, agent: cafe/main}, do: release}
"""
    scenario = load_scenario(write_scenario(tmp_path, WHOLE.rstrip() + more + CAFE))
    assert [(step.action, step.to) for step in scenario.steps] == [("run", ""), ("begin", "cafe")]
    begin, release = scenario.actions
    assert isinstance(begin, UserAction)
    assert isinstance(release, UserAction)
    assert (begin.action, begin.session) == ("begin", "cafe")
    assert (release.action, release.session) == ("release", "")
    with open_environment(scenario, 0, is_kept=False) as environment:
        before = SessionDirectory.create(environment.project, environment.clock, task="Look.", model="opus")
        command = second_session_command("cafe", scenario, environment, before)
        assert f"Write to {before.id}." in command
        assert environment.script_of("cafe").read_text() != environment.script.read_text()
        assert str(environment.script_of("cafe")) in command


@pytest.mark.parametrize(
    ("more", "line", "reason"),
    [
        ("steps: [run, begin: cave]", 15, "unknown session 'cave'; did you mean 'cafe'?"),
        ("steps: [begin: cafe]", 15, "the first step must be run, not begin"),
        ("human: [{when: {kind: started}, do: begin}]", 15, "begin needs 'session'"),
        ("human: [{when: {kind: started}, do: release, session: bar}]", 15, "unknown session 'bar'"),
        ("faults: [{when: {kind: started, agent: cafe/mian}, do: kill, target: scout}]", 15, "did you mean 'cafe/m"),
        ("  bar: {task: Drink.}", 15, "the session 'bar' has no key 'script'"),
        ("  bar: {task: Drink., script: {waiter: [Yes.]}}", 15, "the script has no replies for the lead"),
    ],
)
def test_invalid_second_session_is_reported_with_its_line(tmp_path: Path, more: str, line: int, reason: str) -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        load_scenario(write_scenario(tmp_path, WHOLE + CAFE + more + "\n"))
    [error] = caught.value.errors
    assert error.line == line
    assert reason in error.reason


def test_agents_of_second_sessions_are_distinguished_by_prefix(tmp_path: Path) -> None:
    mine = seen("root", "agent_changed", name="main", incarnation=1, state="done")
    other = qualify_event(
        "cafe", seen("root", "agent_changed", name="main", incarnation=1, state="failed", parent="boss")
    )
    assert isinstance(other.event, AgentChanged)
    assert (other.agent, other.event.name, other.event.parent) == ("cafe/root", "cafe/main", "cafe/boss")
    assert other.members["name"] == "cafe/main"
    assert qualify_event("", mine) is mine
    both = make_run_record(tmp_path, mine, other, states={"main": "done", "cafe/main": "failed"})
    assert StateIs(line=1, agent="main", state="done").check(both) == []
    assert StateIs(line=1, agent="cafe/main", state="done").check(both) != []


def test_mail_delivered_in_another_session_is_not_missing(tmp_path: Path) -> None:
    there = [qualify_hop("cafe", make_mail_step("stored", 1)), qualify_hop("cafe", make_mail_step("delivered", 1))]
    assert MailOnce(line=1).check(make_run_record(tmp_path, mail=there)) == []
    assert MailOnce(line=1).check(make_run_record(tmp_path, mail=[there[0], make_mail_step("delivered", 1)])) != []
