"""Parsing of a model's selection from any answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.recall.selection import parse_selection

KNOWN = {f"{number}.md": None for number in range(60)}


def answer(*names: object) -> str:
    return json.dumps({"selected_memories": names})


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        (answer("2.md", "1.md"), ["2.md", "1.md"]),
        (answer("./2.md", "`1.md` "), ["2.md", "1.md"]),
        (answer("x.md", "1.md", "1.md", 7, None, "../1.md"), ["1.md"]),
        (answer(*map(str, range(10)), *KNOWN), ["0.md", "1.md", "2.md", "3.md", "4.md"]),
        (answer("x.md", "y.md"), []),
        (answer(), []),
        (f"Sure, here you are {{as asked}}: {answer('1.md')} Tell me if you need more.", ["1.md"]),
        (f"```json\n{answer('1.md')}\n```", ["1.md"]),
        (f"[{answer('1.md')}]", ["1.md"]),
        (f'{{"thoughts": {{}}}} {answer("1.md")}', ["1.md"]),
        ("", None),
        ("1.md looks useful", None),
        ("{", None),
        ('{"selected_memories": "1.md"}', None),
        ('{"selected": ["1.md"]}', None),
        pytest.param("{" * 10_000, None, id="deep"),
    ],
)
def test_known_names_are_selected_in_order_from_any_answer(text: str, selected: list[str] | None) -> None:
    assert parse_selection(text, KNOWN) == selected


@given(st.text(max_size=300))
def test_any_answer_can_be_parsed(text: str) -> None:
    assert parse_selection(text, KNOWN) is None or text
