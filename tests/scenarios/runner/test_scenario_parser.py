"""Scenario files: the parser reports all errors with their lines, and the schema in `docs/` knows the same keys."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.parsing.scenario_parser import load_faults, load_scenario, shipped_files
from coterie.scenarios.runner.parsing.schema import FILE, scenario_schema, write_schema
from coterie.scenarios.runner.scenario import IoFault, ProcessFault, UserAction
from tests.scenarios.runner.scenario_samples import WHOLE, write_scenario

STARTED = "when: {kind: started, agent: scout}"


def problems_of(path: Path) -> list[tuple[int, str]]:
    """Return the errors of the file with their lines."""
    with pytest.raises(ScenarioInvalid) as caught:
        load_scenario(path)
    return [(error.line, error.reason) for error in caught.value.errors]


def test_scenario_file_with_all_keys_is_parsed(tmp_path: Path) -> None:
    more = f"""
faults:
  - {{{STARTED}, do: kill, target: scout}}
  - {{{STARTED}, nth: 2, do: stop, target: lead, seconds: 0.5}}
  - {{{STARTED}, do: jump, seconds: 60}}
  - {{do: delay, transport: file, target: lead, seconds: 0.5, after: 1, times: always}}
  - {{{STARTED}, do: torn_write, target: scout, files: "*.jsonl", times: 2}}
human:
  - {{when: {{kind: approval_asked, name: scout}}, do: reject, feedback: Not yet.}}
steps: [run, {{mail: {{to: scout, text: Hello.}}}}, {{resume: Go on.}}]
limits: {{seconds: 5, dollars: 0.25}}
"""
    scenario = load_scenario(write_scenario(tmp_path, WHOLE + more))
    kill, stop, jump, late, torn, human = scenario.actions
    assert isinstance(kill, ProcessFault)
    assert (kill.action, kill.target, kill.when.nth, kill.line) == ("kill", "scout", 1, 12)
    assert isinstance(stop, ProcessFault)
    assert (stop.when.nth, stop.target, stop.seconds) == (2, "lead", 0.5)
    assert isinstance(jump, ProcessFault)
    assert jump.seconds == 60
    assert isinstance(late, IoFault)
    assert (late.when, late.rule.target, late.rule.after, late.rule.times) == (None, "main", 1, None)
    assert isinstance(torn, IoFault)
    assert torn.when is not None
    assert (torn.rule.do, torn.rule.files, torn.rule.times) == ("torn_write", "*.jsonl", 2)
    assert isinstance(human, UserAction)
    assert [step.action for step in scenario.steps] == ["run", "mail", "resume"]
    assert scenario.limits.seconds == 5


@pytest.mark.parametrize(
    ("more", "is_seen", "reason"),
    [
        ("budget: 3", True, "unknown key 'budget'"),
        ("model: gpt", False, "'gpt' is not a known model"),
        ("permission_mode: acceptEdit", True, "did you mean 'acceptEdits'?"),
        ("budget_usd: much", True, "an amount of dollars"),
        ("max_turns: 0", True, "a whole number from 1"),
        ("coordinator: perhaps", True, "true or false"),
        ("settings: {colour: red}", False, "unknown setting 'colour'"),
        ("team: nowhere.toml", False, "cannot be read"),
        ("workspace: {files: {../a: x}}", False, "outside the workspace"),
        ("workspace: {git: perhaps}", True, "true or false"),
        ("limits: {seconds: soon}", True, "a number of seconds"),
        ("steps: [resume]", False, "the first step must be run"),
        ("steps: [run, walk]", True, "'walk'"),
        ("faults: []", True, "an empty list"),
        (f"faults: [{{{STARTED}}}]", True, "has no 'do'"),
        ("faults: [{do: kill, target: scout}]", True, "kill needs 'when'"),
        (f"faults: [{{{STARTED}, do: kil, target: scout}}]", True, "did you mean 'kill'?"),
        (f"faults: [{{{STARTED}, do: kill}}]", True, "kill needs 'target'"),
        (f"faults: [{{{STARTED}, do: jump}}]", True, "jump needs 'seconds'"),
        (f"faults: [{{{STARTED}, do: kill, target: scuot}}]", False, "did you mean 'scout'?"),
        ("faults: [{when: {kind: strated}, do: kill, target: scout}]", True, "did you mean 'started'?"),
        ("faults: [{when: {kind: started, agnet: a}, do: kill, target: scout}]", True, "did you mean 'agent'?"),
        ("faults: [{do: drop}]", True, "drop needs 'transport'"),
        ("faults: [{do: drop, transport: fiel}]", True, "did you mean 'file'?"),
        ("faults: [{do: reorder, transport: bridge}]", True, "no fault reorder on transport 'bridge'"),
        ("faults: [{do: delay, transport: file}]", True, "delay needs 'seconds'"),
        ("faults: [{do: drop, transport: file, times: 0}]", True, "from 1, or always"),
        ("faults: [{do: drop, transport: file, after: -1}]", True, "a whole number from 0"),
        ("faults: [{do: drop, transport: file, target: nobody}]", False, "has the name 'nobody'"),
        ("faults: [{do: disk_full, files: /etc/passwd}]", False, "can match no file"),
        ("faults: [{do: disk_full, transport: file}]", True, "unknown key 'transport'"),
        ("human: [{when: {kind: started}, do: approve}]", False, "which identifies the approval"),
        (f"human: [{{{STARTED}, do: mail, to: scout}}]", True, "mail needs 'text'"),
    ],
)
def test_invalid_key_is_reported_with_its_line(more: str, reason: str, tmp_path: Path, *, is_seen: bool) -> None:
    """If *is_seen*, the published schema refuses it as well."""
    text = f"{WHOLE}\n{more}\n"
    [(line, said)] = problems_of(write_scenario(tmp_path, text))
    assert line == 11
    assert reason in said
    assert bool(schema_errors(text)) == is_seen


@pytest.mark.parametrize(
    ("expectation", "is_seen", "reason"),
    [
        ("exit_cod: 0", True, "did you mean 'exit_code'?"),
        ("exit_code: -1", True, "a whole number from 0"),
        ("event: {agent: main}", True, "has no 'kind'"),
        ("event: {kind: finished, agent: boss}", False, "has the name 'boss'"),
        ("event: {kind: agent_changed, name: scout, state: dne}", False, "unknown state 'dne'; did you mean 'done'?"),
        ('event: {kind: finished, result: "/(/"}', False, "the regular expression /(/ is invalid"),
        ("order: [{kind: started}]", True, "only one event"),
        ("{never: {kind: started}, times: 2}", True, "times can be used only with event"),
        ("{exit_code: 0, strays: 0}", True, "2 expectations"),
        ("mail: {exactly_once: false}", True, "true"),
        ("file: {contains: x}", True, "file needs 'path'"),
        ("file: {path: a, missing: true, contains: x}", False, "missing can be used only with path"),
        ("command: {status: 0}", True, "command needs 'run'"),
        ("state: {scout: dead}", True, "unknown agent state 'dead'"),
        ("state: {nobody: done}", False, "has the name 'nobody'"),
        ("cache_read_share: {at_least: 2}", True, "a number from 0 to 1"),
        ("dollars: {at_most: cheap}", True, "an amount of dollars"),
        ("strays: 1", True, "strays must be 0"),
    ],
)
def test_invalid_expectation_is_refused(expectation: str, reason: str, tmp_path: Path, *, is_seen: bool) -> None:
    text = f"{WHOLE}  - {expectation}\n"
    [(line, said)] = problems_of(write_scenario(tmp_path, text))
    assert line == 10
    assert reason in said
    assert bool(schema_errors(text)) == is_seen


@pytest.mark.parametrize(
    ("script", "line", "reason"),
    [
        ("script: {scout: [Open.]}", 3, "no replies for the lead"),
        ("script:\n  main:\n    - {text: x, until: never}", 5, "waits for signal 'never' that no reply raises"),
        ("script:\n  main:\n    - {txt: x}", 5, "did you mean 'text'?"),
        ("script: nowhere.yaml", 3, "does not exist"),
    ],
)
def test_a_script_that_never_answers_is_found(script: str, line: int, reason: str, tmp_path: Path) -> None:
    text = f"about: A scenario.\ntask: Look.\n{script}\nexpect: [{{exit_code: 0}}]\n"
    [(found, said)] = problems_of(write_scenario(tmp_path, text))
    assert found == line
    assert reason in said


def test_all_errors_are_reported_together_ordered_by_line(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "abuot: x\ntask: y\nscript: {main: [a]}\nmodel: gpt\nexpect: [{exit_cod: 0}]\n")
    lines = [line for line, _ in problems_of(path)]
    assert lines == sorted(lines)
    assert len(lines) == 4  # an unknown key, a missing one, the model, the expectation
    with pytest.raises(ScenarioInvalid, match=rf"{path}, line 4: "):
        load_scenario(path)


@pytest.mark.parametrize(("text", "reason"), [("", "empty"), ("[1]", "not a list"), ("a: [", "not valid YAML")])
def test_file_that_is_no_scenario_gives_one_error(text: str, reason: str, tmp_path: Path) -> None:
    [(_, said)] = problems_of(write_scenario(tmp_path, text))
    assert reason in said


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    [(line, said)] = problems_of(tmp_path / "none.yaml")
    assert line == 1
    assert "No such file or directory" in said


def test_faults_of_another_file_are_added_after_the_scenarios_own(tmp_path: Path) -> None:
    scenario = load_scenario(write_scenario(tmp_path, f"{WHOLE}\nfaults: [{{{STARTED}, do: kill, target: scout}}]\n"))
    more = tmp_path / "faults.yaml"
    more.write_text("faults: [{do: drop, transport: bell}]\n")
    assert [type(act) for act in load_faults(more, scenario).actions] == [ProcessFault, IoFault]
    more.write_text("faults:\n  - {do: drop, transport: bell, target: boss}\n")
    with pytest.raises(ScenarioInvalid, match=r"line 2: .* has the name 'boss'"):
        load_faults(more, scenario)


DOCS = Path(__file__).parents[3] / "docs"
HERE = Path(__file__).parent

SCHEMA = Draft202012Validator(scenario_schema())


def schema_errors(text: str) -> list[str]:
    """Return the schema's errors for a file with this *text*."""
    node = read_yaml(text, "the scenario")
    assert node is not None
    return [error.message for error in SCHEMA.iter_errors(node.plain())]


def test_published_schema_equals_the_generated_one(tmp_path: Path) -> None:
    write_schema(tmp_path)
    assert (DOCS / FILE).read_text() == (tmp_path / FILE).read_text(), "make schemas"
    Draft202012Validator.check_schema(json.loads((DOCS / FILE).read_text()))


@pytest.mark.parametrize("path", [*shipped_files(), *HERE.glob("*.yaml")], ids=lambda path: path.stem)
def test_every_scenario_matches_the_schema(path: Path) -> None:
    assert schema_errors(path.read_text()) == []
