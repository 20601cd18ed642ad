"""The mutation table matches the code; `python -m tests.run_mutations` checks that tests catch each entry."""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.run_mutations import Mutation, load_mutations

ROOT = Path(__file__).parents[1]
MUTATIONS = load_mutations()


def test_names_are_unique_and_in_one_style() -> None:
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutation.name) for mutation in MUTATIONS)
    assert [name for name, count in Counter(mutation.name for mutation in MUTATIONS).items() if count > 1] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_applies_to_its_file_and_names_documents_and_tests_that_exist(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    changed = mutation.apply(text)
    assert changed != text
    match Path(mutation.file).suffix:
        case ".py":
            ast.parse(changed)
        case ".toml":
            tomllib.loads(changed)
        case other:
            assert other == ".md"
    tests = [test.partition("::")[0] for test in mutation.tests]
    assert tests
    assert [path for path in (mutation.source, *tests) if not (ROOT / path).exists()] == []
