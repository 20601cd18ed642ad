"""Parsing of memory files with any content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.store.memory_entry import LONGEST_DESCRIPTION, parse_entry


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
