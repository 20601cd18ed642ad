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
    ("more", "line", "reason"),
    [
        ("budget: 3", 11, "unknown key 'budget'"),
        ("model: gpt", 11, "'gpt' is not a known model"),
        ("permission_mode: acceptEdit", 11, "did you mean 'acceptEdits'?"),
        ("budget_usd: much", 11, "an amount of dollars"),
        ("max_turns: 0", 11, "a whole number from 1"),
        ("coordinator: perhaps", 11, "true or false"),
        ("settings: {colour: red}", 11, "there is no setting 'colour'"),
        ("team: nowhere.toml", 11, "cannot be read"),
        ("workspace: {files: {../a: x}}", 11, "outside the workspace"),
        ("limits: {seconds: soon}", 11, "a number of seconds"),
        ("steps: [resume]", 11, "the first step must be run"),
        ("steps: [run, walk]", 11, "'walk'"),
        ("faults: []", 11, "an empty list"),
        (f"faults: [{{{STARTED}}}]", 11, "has no 'do'"),
        ("faults: [{do: kill, target: scout}]", 11, "kill needs 'when'"),
        (f"faults: [{{{STARTED}, do: kil, target: scout}}]", 11, "did you mean 'kill'?"),
        (f"faults: [{{{STARTED}, do: kill}}]", 11, "kill needs 'target'"),
        (f"faults: [{{{STARTED}, do: jump}}]", 11, "jump needs 'seconds'"),
        (f"faults: [{{{STARTED}, do: kill, target: scuot}}]", 11, "did you mean 'scout'?"),
        ("faults: [{when: {kind: strated}, do: kill, target: scout}]", 11, "did you mean 'started'?"),
        ("faults: [{when: {kind: started, agnet: a}, do: kill, target: scout}]", 11, "did you mean 'agent'?"),
        ("faults: [{do: drop}]", 11, "drop needs 'transport'"),
        ("faults: [{do: drop, transport: fiel}]", 11, "did you mean 'file'?"),
        ("faults: [{do: reorder, transport: bridge}]", 11, "no fault reorder on 'bridge'"),
        ("faults: [{do: delay, transport: file}]", 11, "delay needs 'seconds'"),
        ("faults: [{do: drop, transport: file, times: 0}]", 11, "from 1, or always"),
        ("faults: [{do: drop, transport: file, after: -1}]", 11, "a whole number from 0"),
        ("faults: [{do: drop, transport: file, target: nobody}]", 11, "there will be no agent 'nobody'"),
        ("faults: [{do: disk_full, files: /etc/passwd}]", 11, "matches no file"),
        ("faults: [{do: disk_full, transport: file}]", 11, "unknown key 'transport'"),
        ("human: [{when: {kind: started}, do: approve}]", 11, "which identifies the approval"),
        (f"human: [{{{STARTED}, do: mail, to: scout}}]", 11, "mail needs 'text'"),
    ],
)
def test_invalid_key_is_reported_with_its_line(more: str, line: int, reason: str, tmp_path: Path) -> None:
    [(found, said)] = problems_of(write_scenario(tmp_path, f"{WHOLE}\n{more}\n"))
    assert found == line
    assert reason in said


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        ("exit_cod: 0", "did you mean 'exit_code'?"),
        ("exit_code: -1", "a whole number from 0"),
        ("event: {agent: main}", "has no kind"),
        ("event: {kind: finished, agent: boss}", "there will be no agent 'boss'"),
        ("event: {kind: agent_changed, name: scout, state: dne}", "is never 'dne'; did you mean 'done'?"),
        ('event: {kind: finished, result: "/(/"}', "bad regular expression"),
        ("order: [{kind: started}]", "at least two events"),
        ("{never: {kind: started}, times: 2}", "times can be used only with event"),
        ("{exit_code: 0, strays: 0}", "2 expectations"),
        ("mail: {exactly_once: false}", "true"),
        ("file: {contains: x}", "file needs 'path'"),
        ("file: {path: a, missing: true, contains: x}", "missing can be used only with path"),
        ("command: {status: 0}", "command needs 'run'"),
        ("state: {scout: dead}", "no agent is 'dead'"),
        ("state: {nobody: done}", "there will be no agent 'nobody'"),
        ("cache_read_share: {at_least: 2}", "a number from 0 to 1"),
        ("dollars: {at_most: cheap}", "an amount of dollars"),
        ("strays: 1", "strays must be 0"),
    ],
)
def test_invalid_expectation_is_refused(expectation: str, reason: str, tmp_path: Path) -> None:
    [(line, said)] = problems_of(write_scenario(tmp_path, f"{WHOLE}  - {expectation}\n"))
    assert line == 10
    assert reason in said


@pytest.mark.parametrize(
    ("script", "line", "reason"),
    [
        ("script: {scout: [Open.]}", 3, "no replies for the lead"),
        ("script:\n  main:\n    - {text: x, until: never}", 5, "waits for the signal 'never', which no reply raises"),
        ("script:\n  main:\n    - {txt: x}", 5, "did you mean 'text'?"),
        ("script: nowhere.yaml", 3, "there is no script"),
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
    assert problems_of(tmp_path / "none.yaml") == [(1, "cannot be read: No such file or directory")]


def test_faults_of_another_file_are_added_after_the_scenarios_own(tmp_path: Path) -> None:
    scenario = load_scenario(write_scenario(tmp_path, f"{WHOLE}\nfaults: [{{{STARTED}, do: kill, target: scout}}]\n"))
    more = tmp_path / "faults.yaml"
    more.write_text("faults: [{do: drop, transport: bell}]\n")
    assert [type(act) for act in load_faults(more, scenario).actions] == [ProcessFault, IoFault]
    more.write_text("faults:\n  - {do: drop, transport: bell, target: boss}\n")
    with pytest.raises(ScenarioInvalid, match="line 2: there will be no agent 'boss'"):
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


@pytest.mark.parametrize(
    "more",
    [
        "colour: red",
        "permission_mode: anything",
        "max_turns: 0",
        "faults: []",
        "faults: [{do: drop}]",
        "faults: [{do: delay, transport: file}]",
        "faults: [{do: reorder, transport: bridge}]",
        "faults: [{do: kill, target: main}]",
        "faults: [{when: {kind: strated}, do: kill, target: main}]",
        "faults: [{when: {kind: started, nme: x}, do: kill, target: main}]",
        "human: [{when: {kind: started}, do: mail, to: main}]",
        "steps: [walk]",
        "limits: {seconds: soon}",
        "workspace: {git: perhaps}",
        *("  - exit_cod: 0", "  - strays: 1", "  - state: {main: dead}", "  - order: [{kind: started}]"),
    ],
)
def test_schema_refuses_what_the_parser_refuses(more: str) -> None:
    assert schema_errors(f"{WHOLE}\n{more}\n")
