"""Every test of a module with rules is a case, and each case has its own rule."""

import importlib
import inspect
from pathlib import Path

from tests.conformance.cases import RULES, rule, rules


def test_every_case_has_a_rule_of_its_own() -> None:
    names = set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        if path.name != Path(__file__).name and (hasattr(module, "rule") or hasattr(module, "rules")):
            assert {getattr(module, "rule", rule), getattr(module, "rules", rules)} == {rule, rules}
            functions = inspect.getmembers(module, inspect.isfunction)
            names |= {f"{function.__module__}.{name}" for name, function in functions if name.startswith("test_")}
    assert names == {case.partition("[")[0] for case in RULES}
    assert len(RULES) == len(set(RULES.values())) >= 150
    assert [reference for reference in RULES.values() if " / " not in reference] == []
