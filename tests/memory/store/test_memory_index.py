"""The index has a line for each memory, and keeps all other text."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_entry import parse_entry
from coterie.memory.store.memory_index import (
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LINES,
    IndexLine,
    index_line,
    index_lines,
    load_index,
    revert_index,
    update_index,
)
from coterie.memory.store.path_rules import INDEX, is_valid


def change(path: str, before: bytes | None, after: bytes | None) -> MemoryChange:
    return MemoryChange(id="1", at=0.0, author=Author(by="agent"), path=path, before=before, after=after)


def added(path: str, content: bytes = b"text\n") -> MemoryChange:
    return change(path, None, content)


def removed(path: str) -> MemoryChange:
    return change(path, b"text\n", None)


def test_index_line_has_link_and_hook() -> None:
    lines = [
        "# Memory",
        "- [Tabs](style/tabs.md) \N{EM DASH} we use tabs",
        "* [No hook](a.md)",
        "- [b](<my file.md>): yes",
    ]
    text = "\n".join([*lines, "no [link](x.md)", ""])
    assert index_lines(text) == [
        IndexLine(line=2, title="Tabs", path="style/tabs.md", hook="we use tabs"),
        IndexLine(line=3, title="No hook", path="a.md", hook=""),
        IndexLine(line=4, title="b", path="my file.md", hook="yes"),
    ]


def test_short_index_is_loaded_whole() -> None:
    text = "- [a](a.md)\n" * MOST_LINES
    loaded = load_index(text)
    assert loaded.text == text
    assert loaded.warning is None


def test_index_is_cut_to_two_hundred_lines_with_a_warning() -> None:
    loaded = load_index("".join(f"- [{number}]({number}.md)\n" for number in range(250)))
    assert len(loaded.text.split("\n")) == MOST_LINES
    assert loaded.warning is not None
    assert "250 lines" in loaded.warning
    assert "first 200 lines" in loaded.warning


def test_index_is_cut_to_its_byte_limit_at_a_line_end() -> None:
    line = f"- [a](a.md) \N{EM DASH} {'ä' * 150}"
    loaded = load_index(f"{line}\n" * 100)
    assert len(loaded.text.encode()) <= MOST_BYTES
    assert set(loaded.text.split("\n")) == {line}
    assert loaded.warning is not None


def test_single_long_index_line_is_cut_inside() -> None:
    loaded = load_index("ä" * 2_000_000)
    assert 0 < len(loaded.text.encode()) <= MOST_BYTES
    assert loaded.warning is not None


@given(st.text(max_size=400))
def test_loaded_index_is_a_prefix(text: str) -> None:
    assert text.startswith(load_index(text * 100).text[: len(text)])


def test_new_memory_gets_one_index_line() -> None:
    memory = added("tabs.md", b"---\nname: Tabs\ndescription: we use tabs\n---\n")
    text = update_index("", [memory])
    assert text == "- [Tabs](tabs.md) \N{EM DASH} we use tabs\n"
    assert update_index(text, [memory]) == text


def test_linked_memory_gets_no_second_line() -> None:
    text = "# By topic\n* [How we indent](./tabs.md)"
    assert update_index(text, [added("tabs.md"), change("tabs.md", b"a", b"b")]) == text


def test_name_inside_another_name_is_not_a_link() -> None:
    text = update_index("- [x](my_tabs.md)\n", [added("tabs.md")])
    assert [entry.path for entry in index_lines(text)] == ["my_tabs.md", "tabs.md"]


def test_deletion_removes_only_lines_of_its_memory() -> None:
    text = "# Memory\n- [a](a.md)\nabout a.md\n- [b](b.md)\n- [again](a.md)\n"
    assert update_index(text, [removed("a.md")]) == "# Memory\nabout a.md\n- [b](b.md)\n"


def test_restored_memory_restores_its_own_line() -> None:
    back = attrs.evolve(added("a.md"), index_line="- [Mine](a.md): as I want it")
    assert update_index("", [back]) == "- [Mine](a.md): as I want it\n"


def test_logs_and_index_get_no_index_line() -> None:
    assert update_index("", [added("logs/2026/11/2026-11-16.md"), added(INDEX)]) == ""


def test_incomplete_last_line_is_completed() -> None:
    whole = update_index("- [a](a.md)\n", [added("b.md"), added("c.md")])
    for size in range(len("- [a](a.md)\n"), len(whole)):
        assert update_index(whole[:size], [added("b.md"), added("c.md")]) == whole


def test_long_index_line_keeps_its_link() -> None:
    topic = parse_entry(f"---\nname: a\ndescription: {'long ' * 100}\n---\n".encode(), "a.md")
    assert len(index_line(topic, "a.md")) <= LONGEST_LINE
    assert len(index_line(attrs.evolve(topic, name="long " * 100), "a.md")) <= LONGEST_LINE
    path = f"{'x' * 240}.md"
    assert [entry.path for entry in index_lines(index_line(topic, path))] == [path]


@given(st.text(max_size=60), st.text(max_size=200), st.text(min_size=1, max_size=40))
def test_every_index_line_links_to_its_memory(name: str, description: str, stem: str) -> None:
    path = f"{stem}.md"
    if not is_valid(path):
        return
    content = f"---\nname: {name}\ndescription: {description}\n---\n".encode(errors="replace")
    text = update_index("- [first](first.md)", [added(path, content)])
    if path != "first.md":
        assert [entry.path for entry in index_lines(text)] == ["first.md", path]
        assert update_index(text, [removed(path)]) == "- [first](first.md)\n"


def test_revert_of_an_index_keeps_later_edits() -> None:
    before = "# Memory\n- [a](a.md): mine\n- [b](b.md)\n- [c](c.md)\n"
    after = "# Memory\n- [ab](ab.md)\n- [c](c.md)\n"
    assert revert_index(after, before, after) == before
    later = f"{after}- [new](new.md)\n"
    assert revert_index(later, before, after) == f"{before}- [new](new.md)\n"
