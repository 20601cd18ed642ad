"""Definitions in 2,141 files of public repositories."""

import gzip
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.definitions.store import parse_definition
from coterie.agents.skills.store import parse_skill
from coterie.memory.front_matter.front_matter import parse_front_matter
from tests.data import absent

CORPUS = Path(__file__).parents[3] / "../shared/data/parser_corpus/parser_corpus.jsonl.gz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CORPUS.exists(), reason=absent(CORPUS)),
]


@cache
def _rows() -> list[dict[str, Any]]:
    with gzip.open(CORPUS) as lines:
        return [msgspec.json.decode(line) for line in lines]


def _agents() -> list[dict[str, Any]]:
    return [row for row in _rows() if row["kind"] == "agent"]


def _parse(row: dict[str, Any]) -> tuple[AgentDefinition | None, list[FileProblem]]:
    return parse_definition(row["text"], path=Path(row["path"]), scope="project")


def _first_block(text: str) -> list[str]:
    """Return the lines between the first two `---`, found without the parser under test."""
    lines = text.lstrip("\ufeff \n\r").splitlines()
    if not lines or lines[0].strip() != "---":
        return []
    end = next((at for at, line in enumerate(lines) if at and line.strip().startswith("---")), len(lines))
    return lines[1:end]


def _has(block: list[str], key: str) -> bool:
    return any(re.match(rf"\s*{key}:\s*\S", line) for line in block)


def test_all_files_are_read_without_an_exception() -> None:
    assert len(_rows()) == 2_141
    for row in _rows():
        front = parse_front_matter(row["text"])
        assert front.fields or not _has(_first_block(row["text"]), "description"), row["path"]
        _parse(row)


def test_agent_has_a_name_and_a_description_or_an_error() -> None:
    promising = 0
    for row in _agents():
        definition, problems = _parse(row)
        assert (definition is None) == any(problem.severity == "error" for problem in problems), row["path"]
        assert definition is None or (definition.name and definition.description)
        if all(_has(_first_block(row["text"]), key) for key in ("name", "description")):
            promising += 1
            assert definition is not None, problems
    assert promising > 1_000


def test_result_equals_strict_yaml_where_that_can_parse() -> None:
    compared = 0
    for row in _agents():
        try:
            strict = yaml.load("\n".join(_first_block(row["text"])), yaml.CBaseLoader)  # noqa: S506 - strings only
        except yaml.YAMLError:
            continue
        if isinstance(strict, dict):
            compared += 1
            fields = parse_front_matter(row["text"]).fields
            assert fields == strict, row["path"]
    assert compared > 1_000


def test_file_that_strict_yaml_rejects_always_has_a_problem() -> None:
    refused = 0
    for row in _rows():
        block = "\n".join(_first_block(row["text"]))
        try:
            yaml.load(block, yaml.CBaseLoader)  # noqa: S506 - strings only
        except yaml.YAMLError:
            refused += 1
            assert parse_front_matter(row["text"]).notes, row["path"]
    assert refused == 83


def test_every_common_key_and_color_is_used_or_has_a_reason() -> None:
    keys: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for row in _agents():
        keys.update(list(parse_front_matter(row["text"]).fields))
        _, problems = _parse(row)
        unknown.update(re.findall(r"unknown key '(.+?)'", "\n".join(problem.reason for problem in problems)))
        assert not [problem for problem in problems if problem.reason.startswith("unknown color ")], row["path"]
    print(keys.most_common())  # noqa: T201 - shown by `pytest -rP`
    assert len(keys) == 32
    assert unknown == {"allowedTools": 16}


def test_common_skills_are_parsed_and_ignored_keys_reported() -> None:
    told: Counter[str] = Counter()
    found = 0
    skills = [row for row in _rows() if row["kind"] == "skill"]
    for row in skills:
        skill, problems = parse_skill(row["text"], path=Path("/project", row["path"]), scope="project")
        found += skill is not None
        told.update(problem.severity for problem in problems)
        assert (skill is None) == any(problem.severity == "error" for problem in problems), row["path"]
        assert skill is None or (skill.description and len(skill.description) <= 1_024)
    print(f"{len(skills)} files, {found} skills: {dict(told)}")  # noqa: T201 - shown by `pytest -rP`
    assert len(skills) == 508
    assert found >= 505
