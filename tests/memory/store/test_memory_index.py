"""Memory files have any content; the index has a line for each memory, and keeps all other text."""

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_entry import LONGEST_DESCRIPTION, parse_entry
from coterie.memory.store.memory_index import (
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LINES,
    IndexLine,
    index_lines,
    load_index,
    revert_index,
    update_index,
)
from coterie.memory.store.path_rules import INDEX, is_valid


@pytest.mark.parametrize(
    ("content", "fields", "warning"),
    [
        (b"---\nname: A\ndescription: d\ntype: project\n---\n\n`make`.\n", ("A", "d", "project", "`make`."), None),
        (b"---\nname: a\nmetadata:\n  type: feedback\n  node: x\n---\nbody\n", ("a", "body", "feedback", "body"), None),
        (b"\n# We use tabs\n\nAlways.\n", ("file", "We use tabs", None, "# We use tabs\n\nAlways."), None),
        (b"---\nname: a\ntype: gossip\n---\nbody\n", ("a", "body", None, "body"), "'gossip'"),
        (b"\x7fELF\0\0\0", ("file", "", None, ""), "NUL"),
        (b"na\xefve\n", ("file", "na\ufffdve", None, "na\ufffdve"), "UTF-8"),
        (b"---\nname: a: [\ndescription: here\n---\nbody\n", ("a: [", "here", None, "body"), "'name'"),
    ],
    ids=["front matter", "type in metadata", "no front matter", "unknown type", "binary", "not UTF-8", "invalid YAML"],
)
def test_entry_is_parsed_with_a_warning_for_each_problem(
    content: bytes, fields: tuple[object, ...], warning: str | None
) -> None:
    entry = parse_entry(content, "style/file.md")
    assert (entry.name, entry.description, entry.type, entry.body) == fields
    assert [warning in note for note in entry.notes if warning] == ([] if warning is None else [True])


@pytest.mark.parametrize("start", [b"", b"---\nname: ", b"---\nname: a\n---\n"])
def test_endless_line_is_cut(start: bytes) -> None:
    topic = parse_entry(start + b"y" * 10_000_000, "a.md")
    assert topic.body.endswith("y" * 1000)
    assert len(topic.description) <= LONGEST_DESCRIPTION
    assert len(topic.name) <= LONGEST_DESCRIPTION


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: b"---\n" + text.encode()))
def test_any_file_content_is_parsed(content: bytes) -> None:
    topic = parse_entry(content, "some/file.md")
    assert topic.name
    assert "\n" not in topic.description


def change(path: str, before: bytes | None, after: bytes | None) -> MemoryChange:
    return MemoryChange(id="1", at=0.0, author=Author(by="agent"), path=path, before=before, after=after)


def added(path: str, content: bytes = b"text\n") -> MemoryChange:
    return change(path, None, content)


def removed(path: str) -> MemoryChange:
    return change(path, b"text\n", None)


def test_index_line_has_link_and_hook() -> None:
    text = "# Memory\n- [Tabs](style/tabs.md) — we use tabs\n* [No hook](a.md)\n- [b](<my file.md>): yes\n[l](x.md)\n"
    assert index_lines(text) == [
        IndexLine(line=2, path="style/tabs.md"),
        IndexLine(line=3, path="a.md"),
        IndexLine(line=4, path="my file.md"),
    ]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param("- [a](a.md)\n" * MOST_LINES, None, id="fits"),
        pytest.param("".join(f"- [{n}]({n}.md)\n" for n in range(250)), "250 lines.* first 200 lines", id="lines"),
        pytest.param(f"- [a](a.md) — {'ä' * 150}\n" * 100, "100 lines", id="bytes"),
        pytest.param("ä" * 2_000_000, "1 lines", id="one line"),
    ],
)
def test_long_index_is_cut_with_a_warning(text: str, warning: str | None) -> None:
    loaded = load_index(text)
    lines = loaded.text.split("\n")
    assert len(lines) <= MOST_LINES + (warning is None)
    assert 0 < len(loaded.text.encode()) <= MOST_BYTES
    assert text.startswith(loaded.text)
    assert text[len(loaded.text) :][:1] in ("", "\n", "ä")
    assert (loaded.warning is None) == (warning is None)
    assert warning is None or re.search(warning, loaded.warning or "")


LINKED = "# By topic\n* [How we indent](./tabs.md)"
OWN_LINE = "- [Mine](a.md): as I want it"


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        (LINKED, [added("tabs.md"), change("tabs.md", b"a", b"b")], LINKED),
        ("- [x](my_tabs.md)\n", [added("tabs.md")], "- [x](my_tabs.md)\n- [tabs](tabs.md) — text\n"),
        (
            "- [a](a.md)\nabout a.md\n- [b](b.md)\n- [a](a.md)\n",
            [removed("a.md")],
            "about a.md\n- [b](b.md)\n",
        ),
        ("", [attrs.evolve(added("a.md"), index_line=OWN_LINE)], f"{OWN_LINE}\n"),
        ("", [added("logs/2026/11/2026-11-16.md"), added(INDEX)], ""),
    ],
    ids=["already linked", "infix", "deleted", "restored", "logs and index"],
)
def test_index_follows_the_changes_of_memories(text: str, changes: list[MemoryChange], expected: str) -> None:
    assert update_index(text, changes) == expected


def test_incomplete_last_line_is_completed() -> None:
    whole = update_index("- [a](a.md)\n", [added("b.md"), added("c.md")])
    for size in range(len("- [a](a.md)\n"), len(whole)):
        assert update_index(whole[:size], [added("b.md"), added("c.md")]) == whole


WORDS = st.text(max_size=200) | st.just("long " * 100)


@given(WORDS, WORDS, st.text(min_size=1, max_size=40) | st.just("x" * 240))
def test_every_index_line_links_to_its_memory(name: str, description: str, stem: str) -> None:
    path = f"{stem}.md"
    if not is_valid(path) or path == "first.md":
        return
    content = f"---\nname: {name}\ndescription: {description}\n---\n".encode(errors="replace")
    text = update_index("- [first](first.md)", [added(path, content)])
    assert [entry.path for entry in index_lines(text)] == ["first.md", path]
    assert len(text.split("\n")[1]) <= max(LONGEST_LINE, len(path) + 30)
    assert update_index(text, [removed(path)]) == "- [first](first.md)\n"


def test_revert_of_an_index_keeps_later_edits() -> None:
    before = "# Memory\n- [a](a.md): mine\n- [b](b.md)\n- [c](c.md)\n"
    after = "# Memory\n- [ab](ab.md)\n- [c](c.md)\n"
    assert revert_index(after, before, after) == before
    later = f"{after}- [new](new.md)\n"
    assert revert_index(later, before, after) == f"{before}- [new](new.md)\n"
