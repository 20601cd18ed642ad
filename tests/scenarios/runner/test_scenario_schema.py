"""The schema of scenario files in `docs/` is what the code knows, and takes what the reader takes."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.parsing.scenario_parser import shipped_files
from coterie.scenarios.runner.parsing.schema import FILE, scenario_schema, write_schema
from tests.scenarios.runner.scenario_samples import WHOLE

DOCS = Path(__file__).parents[3] / "docs"
HERE = Path(__file__).parent

SCHEMA = Draft202012Validator(scenario_schema())


def errors(text: str) -> list[str]:
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
    assert errors(path.read_text()) == []


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
    ],
)
def test_schema_refuses_what_the_parser_refuses(more: str) -> None:
    assert errors(f"{WHOLE}\n{more}\n")


@pytest.mark.parametrize("expectation", ["exit_cod: 0", "strays: 1", "state: {main: dead}", "order: [{kind: started}]"])
def test_schema_refuses_invalid_expectations(expectation: str) -> None:
    assert errors(f"{WHOLE}  - {expectation}\n")
