"""Tests of line numbers of TOML values."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.source_positions import TomlKeyPath, TomlPositions


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        ("\r\n\r\na = 1\r\nb = 2\r\n", ("b",), 4),
        ("# [x]\n[x] # y\n a = 1", ("x", "a"), 3),
        ("[x]\n\na = 1", ("x",), 1),
        ("[x]\n\na = 1", ("x", "unknown", "deeper"), 1),
        ("a = 1", ("unknown",), 1),
        ("a.b = 1\na.c.d = 2", ("a", "c", "d"), 2),
        ("\"a b\".c = 1\n'x.y' = 2", ("x.y",), 2),
        ('"a\\"]" = 1\nb = 2', ("b",), 2),
        ("[[x]]\n[x.y]\na = 1\n[[x]]\n[x.y]\na = 2", ("x", 1, "y", "a"), 6),
        ("[[x]]\n[[x.y]]\n[[x.y]]\na = 1", ("x", 0, "y", 1, "a"), 4),
        ('a = """\\""""\nb = 2', ("b",), 2),
        ('a = """x"""""\nb = 2', ("b",), 2),
        ("a = '''\n\"\"\" ]\n'''\nb = 2", ("b",), 4),
        ("a = 'c:\\'\nb = 2", ("b",), 2),
        ("a = [ # ]\n 1,\n 2 ]\nb = 2", ("a", 1), 1),
        ("a = { b = [\n1] }\nc = 2", ("c",), 3),
        ('a = 1 # """\nb = 2', ("b",), 2),
    ],
)
def test_value_has_its_line(text: str, place: TomlKeyPath, line: int) -> None:
    tomllib.loads(text)  # else the example is none
    assert TomlPositions.parse(text).line_of(*place) == line


KEYS = st.sampled_from(["a", "b", '"c d"', "e-f"])
VALUES = st.sampled_from(
    ["1", '"x # ["', "'''\n]\n'''", '"""\n[y]\n\\""""', "[\n 1, # [\n 2 ]", "{ k = [1] }", "1979-05-27"]
)
STATEMENTS = st.lists(st.tuples(KEYS, VALUES, st.sampled_from(["", "# [[t]]\n", "\n"])), max_size=4)


@given(tables=st.lists(STATEMENTS, max_size=4))
def test_lines_match_generated_document(tables: list[list[tuple[str, str, str]]]) -> None:
    text, expected = "", dict[TomlKeyPath, int]()
    for index, statements in enumerate(tables):
        expected["t", index] = text.count("\n") + 1
        text += "[[t]]\n"
        for key, value, before in {key: (key, value, before) for key, value, before in statements}.values():
            text += before
            expected["t", index, key.strip('"')] = text.count("\n") + 1
            text += f"{key} = {value}\n"
    read: dict[str, Any] = tomllib.loads(text)
    assert sum(len(table) for table in read.get("t", [])) == len(expected) - len(tables), "the test knows all of it"
    lines = TomlPositions.parse(text)
    assert {place: lines.line_of(*place) for place in expected} == expected
