"""Parsing of memory files with any content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.store.memory_entry import LONGEST_DESCRIPTION, MemoryEntry, parse_entry


def test_entry_is_parsed_from_front_matter() -> None:
    content = b"---\nname: Deploying\ndescription: how we deploy\ntype: project\n---\n\nWith `make deploy`.\n"
    assert parse_entry(content, "deploy.md") == MemoryEntry(
        name="Deploying", description="how we deploy", type="project", body="With `make deploy`."
    )


def test_type_may_be_a_field_of_metadata() -> None:
    content = b"---\nname: a\nmetadata:\n  type: feedback\n  node: x\n---\nbody\n"
    assert parse_entry(content, "a.md").type == "feedback"


def test_entry_without_front_matter_uses_file_name_and_first_line() -> None:
    topic = parse_entry(b"\n# We use tabs\n\nAlways.\n", "style/tabs.md")
    assert (topic.name, topic.description, topic.type) == ("tabs", "We use tabs", None)
    assert topic.notes == ()


def test_unknown_type_is_none_with_a_warning() -> None:
    topic = parse_entry(b"---\nname: a\ntype: gossip\n---\nbody\n", "a.md")
    assert topic.type is None
    assert topic.notes == ("the type 'gossip' is unknown; it should be one of user, feedback, project, reference",)


def test_binary_file_has_no_text() -> None:
    topic = parse_entry(b"\x7fELF\0\0\0", "program.md")
    assert (topic.name, topic.description, topic.body) == ("program", "", "")
    assert topic.notes == ("not text: contains a NUL",)


def test_invalid_utf8_is_replaced_with_a_warning() -> None:
    topic = parse_entry(b"na\xefve\n", "a.md")
    assert topic.body == "na\N{REPLACEMENT CHARACTER}ve"
    assert "UTF-8" in topic.notes[0]


def test_invalid_yaml_affects_one_value() -> None:
    topic = parse_entry(b"---\nname: a: b: [\ndescription: still here\n---\nbody\n", "a.md")
    assert topic.description == "still here"
    assert topic.notes


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
