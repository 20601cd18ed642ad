"""Every test of a module with rules is a case, and each case has its own rule."""

import importlib
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.cases import RULES, rule

FEWEST = 60


def _cases() -> Iterator[str]:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        if path.name != Path(__file__).name and getattr(module, "rule", None) is rule:
            functions = inspect.getmembers(module, inspect.isfunction)
            yield from (f"{function.__module__}.{name}" for name, function in functions if name.startswith("test_"))


def test_every_case_names_its_rule() -> None:
    assert [name for name in _cases() if name not in RULES] == []


def test_no_two_cases_name_the_same_rule() -> None:
    counted = Counter(RULES[name] for name in _cases())
    assert [reference for reference, times in counted.items() if times > 1] == []


def test_the_suite_is_whole() -> None:
    assert len(list(_cases())) >= FEWEST


def test_a_reference_is_a_page_and_a_rule() -> None:
    assert [RULES[name] for name in _cases() if " / " not in RULES[name]] == []
