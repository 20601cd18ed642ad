"""Expectations against recorded events; a failure shows the events around it."""

from pathlib import Path
from typing import Any

import pytest

from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.cli.mail.message_history import HopKind
from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.event_pattern import matches_value
from coterie.scenarios.runner.expectations import ScenarioCheck
from coterie.scenarios.runner.parsing.expectation_parser import parse_expectations
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun
from tests.scenarios.runner.scenario_samples import make_ledger_entry, make_mail_step, make_run_record, seen


def expectation(text: str) -> ScenarioCheck:
    node = read_yaml(f"- {text}", "expect")
    error = ParseErrors()
    first, *_ = parse_expectations(node, error)
    assert not error.found
    return first


def judged(text: str, play: ScenarioRun) -> list[ScenarioFailure]:
    return expectation(text).check(play)


@pytest.mark.parametrize(
    ("wanted", "found", "is_so"),
    [
        ("done", "done", True),
        ("done", "well done", False),
        ("/done$/", "well done", True),
        ("/^done/", "well done", False),
        (1, 1, True),
        (1, 2, False),
        (True, True, True),
        ({"a": "x"}, {"a": "x", "b": "y"}, True),
        ({"a": "x"}, {"b": "y"}, False),
        ({"a": {"b": "/c/"}}, {"a": [{"b": "abc"}, {"b": "x"}]}, True),
        ("x", ["y", "x"], True),
        ("x", ["y"], False),
        ("x", [], False),
        (["x"], ["x"], True),
        (["x"], ["x", "y"], False),
    ],
)
def test_pattern_matches_texts_expressions_and_list_items(wanted: Any, found: Any, *, is_so: bool) -> None:
    assert matches_value(wanted, found) is is_so


STORY = (
    seen("main", "started"),
    seen("scout", "started"),
    seen("scout", "tool_started", name="Read"),
    seen("scout", "finished", result="open"),
    seen("main", "finished", result="It is open."),
)


@pytest.mark.parametrize(
    "text",
    [
        "event: {kind: started}",
        "{event: {kind: started}, times: 2}",
        "{event: {kind: finished, agent: main, result: /open/}, times: 1}",
        "never: {kind: tool_started, agent: main}",
        "order: [{kind: started, agent: main}, {kind: finished, agent: scout}, {kind: finished, agent: main}]",
    ],
)
def test_met_expectations_have_no_failures(text: str, tmp_path: Path) -> None:
    assert judged(text, make_run_record(tmp_path, *STORY)) == []


@pytest.mark.parametrize(
    ("text", "reason", "shown"),
    [
        (
            "event: {kind: finished, agent: main, result: shut}",
            "happened 0 times; expected at least once",
            "It is open",
        ),
        ("{event: {kind: started}, times: 3}", "happened 2 times; expected 3 times", "> scout: started"),
        ("never: {kind: tool_started, name: Read}", "happened; expected never", "> scout: tool_started"),
        (
            "order: [{kind: finished, agent: main}, {kind: finished, agent: scout}]",
            "finished agent='scout' did not happen after finished agent='main'",
            "> main: finished",
        ),
    ],
)
def test_failure_has_a_reason_and_the_events_around_it(text: str, reason: str, shown: str, tmp_path: Path) -> None:
    [failure] = judged(text, make_run_record(tmp_path, *STORY))
    assert reason in failure.reason
    assert failure.line == 1
    assert any(shown in line for line in failure.around), failure.around


@pytest.mark.parametrize(
    ("mail", "reasons"),
    [
        ([("stored", 1), ("delivered", 1)], []),
        ([("stored", 1)], ["message m1 from scout to main was never delivered"]),
        ([("stored", 1), ("delivered", 1), ("delivered", 1)], ["message m1 was delivered to main 2 times"]),
        ([("stored", 1), ("dead", 1)], ["1 messages are dead letters (undeliverable); expected 0"]),
    ],
)
def test_mail_arrives_once(mail: list[tuple[HopKind, int]], reasons: list[str], tmp_path: Path) -> None:
    play = make_run_record(tmp_path, mail=[make_mail_step(*each) for each in mail])
    assert [failure.reason for failure in judged("mail: {exactly_once: true}", play)] == reasons


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('file: {path: a, equals: "x\\n"}', None),
        ("file: {path: a, contains: x}", None),
        ("file: {path: b, missing: true}", None),
        ("file: {path: a, equals: y}", "the file a is 'x\\n'; expected 'y'"),
        ("file: {path: a, contains: y}", "a does not contain 'y'"),
        ("file: {path: b}", "b is missing"),
        ("file: {path: a, missing: true}", "a exists"),
        ("command: {run: cat a, contains: x}", None),
        ("command: {run: exit 3, status: 3}", None),
        ("command: {run: exit 3}", "'exit 3' exited with 3; expected 0"),
        ("command: {run: cat a, contains: y}", "'cat a' did not print 'y'"),
    ],
)
def test_files_and_commands_are_checked_after_the_run(text: str, reason: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    found = [failure.reason for failure in judged(text, make_run_record(tmp_path))]
    assert bool(found) == (reason is not None)
    assert all(reason is not None and reason in each for each in found)


def test_states_exit_codes_costs_and_leftovers_are_checked(tmp_path: Path) -> None:
    usage = Usage(input=100, read=300)
    line = make_ledger_entry("scout", "0.2", usage=usage)
    play = make_run_record(
        tmp_path, states={"scout": "done"}, exit_codes=(1, 0), ledger=[line], findings=("a socket",), errors="why\n"
    )
    good = (
        "state: {scout: done}",
        "exit_code: 0",
        "dollars: {at_most: 0.2, at_least: 0.2}",
        "cache_read_share: {at_least: 0.75, agent: scout}",
    )
    assert [judged(text, play) for text in good] == [[]] * len(good)
    bad = {
        "state: {scout: failed}": "scout is done at the end; expected the state failed",
        "state: {boss: done}": "boss never started; expected the state done",
        "exit_code: 3": "the last command is 0; expected 3",
        "dollars: {at_most: 0.1}": "the cost is $0.2; expected at most $0.1",
        "dollars: {at_least: 0.3}": "the cost is $0.2; expected at least $0.3",
        "cache_read_share: {at_least: 0.8}": "0.750 of the input of all agents was read from the prompt cache",
        "strays: 0": "left behind after the run: a socket",
    }
    for text, reason in bad.items():
        [failure] = judged(text, play)
        assert reason in failure.reason
    [failure] = judged("exit_code: 3", play)
    assert failure.around == ("  why",)
