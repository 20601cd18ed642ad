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
from coterie.agents.definitions.definition_parser import parse_definition
from coterie.agents.skills.skill import parse_skill
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


def test_all_files_are_read_as_strict_yaml_reads_them_or_with_a_problem() -> None:
    assert len(_rows()) == 2_141
    compared = refused = 0
    for row in _rows():
        block, front = _first_block(row["text"]), parse_front_matter(row["text"])
        assert front.fields or not _has(block, "description"), row["path"]
        try:
            strict = yaml.load("\n".join(block), yaml.CBaseLoader)  # noqa: S506 - strings only
        except yaml.YAMLError:
            refused += 1
            assert front.notes, row["path"]
            continue
        if isinstance(strict, dict) and row["kind"] == "agent":
            compared += 1
            assert front.fields == strict, row["path"]
    assert compared > 1_000
    assert refused == 83


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


def test_every_common_key_and_color_is_used_or_has_a_reason() -> None:
    keys: set[str] = set()
    unknown: Counter[str] = Counter()
    for row in _agents():
        keys.update(parse_front_matter(row["text"]).fields)
        _, problems = _parse(row)
        unknown.update(re.findall(r"unknown key '(.+?)'", "\n".join(problem.reason for problem in problems)))
        assert not [problem for problem in problems if problem.reason.startswith("unknown color ")], row["path"]
    assert len(keys) == 32
    assert unknown == {"allowedTools": 16}


def test_common_skills_are_parsed_or_have_an_error() -> None:
    skills = [row for row in _rows() if row["kind"] == "skill"]
    found = 0
    for row in skills:
        skill, problems = parse_skill(row["text"], path=Path("/project", row["path"]), scope="project")
        found += skill is not None
        assert (skill is None) == any(problem.severity == "error" for problem in problems), row["path"]
        assert skill is None or (skill.description and len(skill.description) <= 1_024)
    assert (len(skills), found >= 505) == (508, True)
