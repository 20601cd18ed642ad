from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.recording.record_session import scenario_text

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t")) | st.sampled_from(
    ["1e3", "0o7", "no", "null", "~", "12:30", "# no", "- a", "a: b", "a:", " a", "a ", "a\n", "\n", "%", "{{open}}"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(bool), inner, max_size=4),
    max_leaves=12,
)


def read(text: str) -> Any:
    root = read_yaml(text, "the scenario")
    assert root is not None
    return root.plain()


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["task", "script", "expect"]), VALUES, min_size=1))
def test_scenario_yaml_round_trips(fields: dict[str, Any]) -> None:
    """The writer has YAML 1.1 and the reader 1.2: what is a number to one of them only is in quotes."""
    assert read(scenario_text(fields, ["a remark", "another\nof two lines"])) == fields


def test_remarks_are_at_the_top_and_short_mappings_on_one_line() -> None:
    fields = {
        "task": "Look.",
        "expect": [{"exit_code": 0}, {"state": {"main": "done"}}, {"file": {"equals": "a\nb\n"}}],
    }
    assert scenario_text(fields, ["Recorded."]) == (
        "# Recorded.\n\ntask: Look.\nexpect:\n  - exit_code: 0\n  - state: {main: done}\n"
        "  - file:\n      equals: |\n        a\n        b\n"
    )
