import string

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from coterie.memory.front_matter.front_matter import FrontMatter, parse_front_matter
from coterie.memory.front_matter.yaml_fields import DEPTH, Value
from tests.examples import examples

TEXTS = [
    ("description: Use when: asked", "Use when: asked"),
    ("description: Triggers on: 'a', 'b'.\n  And: more.", "Triggers on: 'a', 'b'. And: more."),
    ('description: "Use it when', "Use it when"),
    ("description: 'Don't wait'", "Don't wait"),
    ('description: "Say "hi" twice"', 'Say "hi" twice'),
    ('description: "a": then "b"', '"a": then "b"'),
    ("description: [a] | --b | --c", "[a] | --b | --c"),
    ("description: *bold* words", "*bold* words"),
    ("description: @mention", "@mention"),
    ("description: `code` first", "`code` first"),
    ("description: % of all", "% of all"),
    ("description:no space", "no space"),
    ("description: |\nNot indented.\nSecond line.", "Not indented.\nSecond line."),
    ("description: >\n\tWith a tab:\n\tand another", "With a tab: and another"),
    ("description: > text: on the line", "> text: on the line"),
    ("description: a: b\n\n  A second paragraph.", "a: b\nA second paragraph."),
    ("description: bell: \a", "bell: \a"),
    ("description: half a pair \ud800", "half a pair \ud800"),
    ("description: *nowhere", "*nowhere"),
]
"""Invalid YAML, and the intended value."""

GOOD: list[tuple[str, Value]] = [
    ("tools: a, b", "a, b"),
    ("tools: [a, b]", ["a", "b"]),
    ("tools:\n  - a\n  - b", ["a", "b"]),
    ("tools:\n- a\n- b", ["a", "b"]),
    ("tools: |\n  one\n  two\n", "one\ntwo\n"),
    ("tools: >-\n  one\n  two", "one two"),
    ("tools: {a: 1, b: [x]}", {"a": "1", "b": ["x"]}),
    ("tools:\n  deep:\n    deeper: yes", {"deep": {"deeper": "yes"}}),
    ("tools: yes", "yes"),
    ("tools: 1.50", "1.50"),
    ("tools: 2024-01-01", "2024-01-01"),
    ("tools:", ""),
    ('tools: "a \\u263a \U0001f600"', "a \u263a \U0001f600"),
    ("other: &x one\ntools: *x", "one"),
    ("tools: one # a comment", "one"),
]


def _read(block: str) -> FrontMatter:
    return parse_front_matter(f"---\n{block}\n---\nbody\n")


def _reasons(front: FrontMatter) -> str:
    return "\n".join(f"{note.line}: {note.reason}" for note in front.notes)


@pytest.mark.parametrize(("block", "value"), GOOD)
def test_valid_yaml_is_parsed_with_string_scalars(block: str, value: Value) -> None:
    front = _read(block)
    assert front.fields["tools"] == value
    assert front.body == "body\n"


@pytest.mark.parametrize(("block", "meant"), TEXTS)
def test_invalid_value_is_guessed_with_a_warning(block: str, meant: str) -> None:
    front = _read(f"name: x\n{block}\nmodel: opus")
    assert front.fields == {"name": "x", "description": meant, "model": "opus"}
    assert [note.line for note in front.notes] == [3]


LISTS = ["tools: [a, b", "tools: ['a', \"b]", "tools:\n\t- a\n\t- b", "tools:\n  - a\n  - 'b"]


@pytest.mark.parametrize("block", LISTS)
def test_invalid_list_is_still_a_list_and_affects_one_value(block: str) -> None:
    front = _read(f"metadata:\n  author: me\n  hint: a: b\n  tags: [p, q]\n{block}")
    assert front.fields == {"metadata": {"author": "me", "hint": "a: b", "tags": ["p", "q"]}, "tools": ["a", "b"]}
    assert [note.line for note in front.notes] == [2, 4, 6]


def test_field_lines_are_lines_of_the_file() -> None:
    front = _read("# a comment\nname: x\n\ndescription: >\n  folded\n\u2028 text\ntools: []")
    assert front.lines == {"name": 3, "description": 5, "tools": 8}
    assert front.line == 1


@pytest.mark.parametrize("block", ["name: a\nname: b", "name: a\nx: y: z\nname: b"])
def test_last_value_of_a_repeated_key_counts(block: str) -> None:
    front = _read(block)
    assert front.fields["name"] == "b"
    assert "'name' is repeated; delete line 2, which is ignored" in _reasons(front)


def test_bom_comments_and_line_ends_are_accepted() -> None:
    text = "\ufeff\r\n<!-- a\r\n--- b -->\r\n  ---\r\n  name: x\r\n  ---\r\nbody\r\n"
    front = parse_front_matter(text)
    assert (front.fields, front.lines, front.body, front.line) == ({"name": "x"}, {"name": 5}, "body\n", 4)
    assert [note.line for note in front.notes] == [1, 4]


@pytest.mark.parametrize(
    ("text", "fields", "body", "warning"),
    [
        ("---\nname: x\ntools: x\n# Title\ntext\n", "name tools", "# Title\ntext\n", "3: the closing"),
        ("---\nname: x\ntools: x\n\n# Title\n", "name tools", "\n# Title\n", "3: the closing"),
        ("---\nname: x\n\n# Title\n\nText.\n---\n", "name", "# Title\n\nText.\n---\n", "4: the closing"),
        ("---\nname: x\n-------\nbody", "name", "body", "3: '-------' is read as closing"),
        ("---\nsome words\nname: x\n---\nb", "name", "b", "2: 'some words' is ignored"),
        ("---\n---\nbody", "", "body", None),
    ],
)
def test_front_matter_ends_where_it_is_meant_to(text: str, fields: str, body: str, warning: str | None) -> None:
    front = parse_front_matter(text)
    assert (front.fields, front.body, front.line) == (dict.fromkeys(fields.split(), "x"), body, 1)
    assert warning in _reasons(front) if warning else front.notes == []


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# Title\n---\nname: x\n---\n", "name: x\n", "<!-- a --> b\n---\nn: x\n---", "---\n\nWords.\n\n---\n"],
)
def test_text_without_front_matter_is_all_body(text: str) -> None:
    front = parse_front_matter(text)
    assert (front.fields, front.line, front.body) == ({}, None, text)
    assert ["not front matter" in note.reason for note in front.notes] == [True] * text.startswith("---")


@pytest.mark.parametrize(
    ("block", "warning"),
    [
        ("a: issue #3 is open", "'#3 is open'"),
        ("a: !now go", "'!now'"),
        ("a: &all of it", "'&all'"),
        ("a:\n\tb: c", "indented with tabs"),
        ('a: b: c\n"q\\u0041": 1', "is not a plain word"),
    ],
)
def test_yaml_syntax_in_a_value_causes_a_warning(block: str, warning: str) -> None:
    assert warning in _reasons(_read(block))


def test_aliases_do_not_expand_exponentially() -> None:
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20))
    front = _read(f"a0: &a0 [x]\n{levels}\nself: &self [*self]")
    assert front.fields["a2"] == "&a2 [*a1, *a1, *a1, *a1, *a1, *a1, *a1, *a1, *a1]"
    assert front.fields["self"] == "&self [*self]"


@pytest.mark.parametrize(
    "block", ["a: " + "[" * 100_000, "{" * 100_000, "a: " + "- " * 50_000, f"a: [{'x, ' * 9_000}]"]
)
def test_deep_brackets_do_not_crash_the_process(block: str) -> None:
    """The composer of libyaml overflows the C stack here, and crashes the process."""
    assert len(_read(block).fields) < 2


def test_too_deep_mapping_is_text() -> None:
    value: Value = _read("\n".join(f"{' ' * n}k:" for n in range(60))).fields["k"]
    depth = 0
    while isinstance(value, dict):
        value = value["k"]
        depth += 1
    assert depth <= 2 * DEPTH


FRAGMENTS = (
    *("---", "...", "----", "    ---", "\ufeff---", "<!--", "-->", "", "# heading", "http://x", "%YAML 1.1", "? [q]"),
    *("name: x", "name:", "a:b", "'k': v", "metadata:", "  text: more", "\tkey: v", "\x85k: v", "a: |", "a: >-"),
    *("tools: [a", "- a", "  - b: c", "  n: {a: b", "a: 'b", 'a: "b', "a: &x b", "a: *x", "a: !t b", "a: \U0001f600 #"),
)
LINES = st.one_of(
    st.sampled_from(FRAGMENTS),
    st.text(alphabet=string.printable + "\u2028\ufeff\U0001f600\ud800\x00", max_size=12),
)


@examples(50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINES, max_size=12).map("\n".join) | st.text(), st.sampled_from(["", "---\n"]))
@example("---\n? a\n: b\n", "")
def test_no_text_raises(text: str, head: str) -> None:
    front = parse_front_matter(head + text)
    assert front.fields.keys() == front.lines.keys()
    last = (head + text).replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= line <= last for line in front.lines.values())
    assert all(1 <= note.line <= last and "\n" not in note.reason for note in front.notes)
    assert (front.line is None) <= (not front.fields)


WORDS = st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1).map(str.strip)


@examples(60)
@given(WORDS.filter(bool))
def test_field_after_an_invalid_value_is_kept(words: str) -> None:
    """Any text of one field leaves the neighbouring fields intact."""
    front = _read(f"name: x\ndescription: {words}\nmodel: opus")
    assert front.fields["name"] == "x"
    assert front.fields["model"] == "opus"
    assert "description" in front.fields
