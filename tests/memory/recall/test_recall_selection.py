"""Parsing of a model's selection from any answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.recall.selection import parse_selection

KNOWN = {f"{number}.md": None for number in range(60)}


def answer(*names: object) -> str:
    return json.dumps({"selected_memories": names})


def test_known_names_are_selected_in_order() -> None:
    assert parse_selection(answer("2.md", "1.md"), KNOWN) == ["2.md", "1.md"]
    assert parse_selection(answer("./2.md", "`1.md` "), KNOWN) == ["2.md", "1.md"]


def test_invented_and_duplicate_names_are_dropped() -> None:
    assert parse_selection(answer("x.md", "1.md", "1.md", 7, None, "../1.md"), KNOWN) == ["1.md"]
    assert parse_selection(answer("x.md", "y.md"), KNOWN) == []


def test_only_the_first_five_names_are_selected() -> None:
    names = [*(f"invented{number}" for number in range(10)), *KNOWN]
    assert parse_selection(answer(*names), KNOWN) == ["0.md", "1.md", "2.md", "3.md", "4.md"]
    assert parse_selection(answer(*names), KNOWN, 2) == ["0.md", "1.md"]


@pytest.mark.parametrize(
    "text",
    [
        f"Sure, here you are {{as asked}}: {answer('1.md')} Tell me if you need more.",
        f"```json\n{answer('1.md')}\n```",
        f"[{answer('1.md')}]",
        f'{{"thoughts": {{}}}} {answer("1.md")}',
    ],
)
def test_selection_is_found_inside_prose_and_fences(text: str) -> None:
    assert parse_selection(text, KNOWN) == ["1.md"]


@pytest.mark.parametrize(
    "text", ["", "1.md looks useful", "{", '{"selected_memories": "1.md"}', '{"selected": ["1.md"]}', "{" * 10_000]
)
def test_answer_without_selection_is_none(text: str) -> None:
    assert parse_selection(text, KNOWN) is None


def test_selection_may_be_empty() -> None:
    assert parse_selection(answer(), KNOWN) == []


@given(st.text(max_size=300))
def test_any_answer_can_be_parsed(text: str) -> None:
    assert parse_selection(text, KNOWN) is None or text
