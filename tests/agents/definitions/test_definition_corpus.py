"""Definitions in 2,141 files of public repositories."""

import gzip
import itertools
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from coterie.agents.definitions.store import parse_definition
from coterie.agents.skills.store import parse_skill
from coterie.memory.front_matter.front_matter import parse_front_matter
from tests.data import absent

CORPUS = Path(__file__).parents[3] / "../shared/data/parser_corpus/parser_corpus.jsonl.gz"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CORPUS.exists(), reason=absent(CORPUS))]


def _block(text: str) -> str:
    """Return the text between the first two `---`, found without the parser under test."""
    lines = text.lstrip("\ufeff \n\r").splitlines()
    if not lines or lines[0].strip() != "---":
        return ""
    return "\n".join(itertools.takewhile(lambda line: not line.strip().startswith("---"), lines[1:]))


def _has(block: str, key: str) -> bool:
    return re.search(rf"^\s*{key}:\s*\S", block, re.MULTILINE) is not None


def test_all_files_are_read_as_strict_yaml_reads_them_or_with_a_problem() -> None:
    """A definition or skill has a name and a description, or an error; every key is known or has a reason."""
    counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    with gzip.open(CORPUS) as rows:
        for row in map(msgspec.json.decode, rows):
            text, kind = row["text"], row["kind"]
            block, front = _block(text), parse_front_matter(text)
            assert front.fields or not _has(block, "description"), row["path"]
            parse = parse_definition if kind == "agent" else parse_skill
            parsed, problems = parse(text, path=Path("/project", row["path"]), scope="project")
            assert (parsed is None) == any(problem.severity == "error" for problem in problems), row["path"]
            assert parsed is None or (parsed.name and parsed.description)
            assert parsed is not None or kind != "agent" or not (_has(block, "name") and _has(block, "description"))
            counts.update([kind, f"{kind} parsed"] if parsed is not None else [kind])
            if kind == "agent":
                unknown.update(re.findall(r"unknown (key|color) '(.+?)'", "\n".join(map(str, problems))))
            try:
                strict = yaml.load(block, yaml.CBaseLoader)  # noqa: S506 - strings only
            except yaml.YAMLError:
                counts["refused"] += 1
                assert front.notes, row["path"]
                continue
            if isinstance(strict, dict) and kind == "agent":
                assert front.fields == strict, row["path"]
    assert (counts["agent parsed"] > 1_000, counts["skill parsed"] >= 505, counts["refused"]) == (True, True, 83)
    assert unknown == {("key", "allowedTools"): 16}
