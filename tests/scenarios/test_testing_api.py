"""The testing API without running a scenario."""

from pathlib import Path

import pytest

from coterie.scenarios.runner.run_record import ScenarioFailure
from coterie.scenarios.testing import ScenarioOutcome, ScenarioUnusable, find_file, read_name, run_file
from tests.scenarios.test_pytest_plugin import BROKEN, PASSES, SCRIPT


def put(directory: Path, name: str, content: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(content)
    return path


def test_a_file_is_found_in_the_first_directory_that_has_it_or_among_those_that_ship(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first, second = put(one, "a.yaml", PASSES), put(two, "b.yaml", PASSES)
    put(two, "a.yaml", PASSES)
    assert find_file("a.yaml", [one, two]) == first
    assert find_file(Path("b.yaml"), [one, two]) == second
    assert find_file("coordinator", [one, two]).name == "coordinator.yaml"
    with pytest.raises(ScenarioUnusable, match=r"unknown scenario 'cordinator'.*coordinator"):
        find_file("cordinator", [one, two])


def test_a_script_is_no_scenario_and_a_broken_one_is_told_with_its_line(tmp_path: Path) -> None:
    assert read_name(put(tmp_path, "a.yaml", PASSES)) == "greeting"
    assert read_name(put(tmp_path, "b.yaml", SCRIPT)) is None
    with pytest.raises(ScenarioUnusable, match=r"c\.yaml, line 12: .*'exit_cod'"):
        read_name(put(tmp_path, "c.yaml", BROKEN))
    with pytest.raises(ScenarioUnusable, match=r"d\.yaml, line 1: the text is not valid YAML"):
        read_name(put(tmp_path, "d.yaml", "["))


def test_faults_with_unknown_names_are_refused_before_anything_starts(tmp_path: Path) -> None:
    faults = put(tmp_path, "faults.yaml", "faults:\n  - {when: {kind: finished}, do: kill, target: nobody}\n")
    with pytest.raises(ScenarioUnusable, match=r"faults\.yaml, line 2: .*'nobody'"):
        run_file(put(tmp_path, "a.yaml", PASSES), 0, faults=faults)


def test_failed_outcome_prints_lines_events_and_the_command_to_repeat() -> None:
    failures = (
        ScenarioFailure(reason="one", line=3, around=("> a", "  b")),
        ScenarioFailure(reason="two", line=4, around=("> a", "  b")),
        ScenarioFailure(reason="three"),
    )
    outcome = ScenarioOutcome(
        name="team", source=Path("t.yaml"), seed=5, failures=failures, events=(), files={}, log=(), seconds=1.0
    )
    assert not outcome.passed
    assert str(outcome).splitlines() == [
        "scenario team failed",
        "  t.yaml, line 3: one",
        "    > a",
        "      b",
        "  t.yaml, line 4: two",
        "  three",
        "  again: coterie scenario run t.yaml --seed 5 --keep",
    ]
