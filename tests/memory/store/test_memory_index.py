"""The index has a line for each memory, and is otherwise as its writers left it."""

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


def test_a_line_links_to_a_memory_and_says_why_to_read_it() -> None:
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


def test_a_short_index_is_loaded_whole() -> None:
    text = "- [a](a.md)\n" * MOST_LINES
    loaded = load_index(text)
    assert loaded.text == text
    assert loaded.warning is None


def test_an_index_is_cut_to_two_hundred_lines_and_says_so() -> None:
    loaded = load_index("".join(f"- [{number}]({number}.md)\n" for number in range(250)))
    assert len(loaded.text.split("\n")) == MOST_LINES
    assert loaded.warning is not None
    assert "250 lines" in loaded.warning
    assert "first 200 lines" in loaded.warning


def test_an_index_is_cut_to_its_bytes_at_the_end_of_a_line() -> None:
    line = f"- [a](a.md) \N{EM DASH} {'ä' * 150}"
    loaded = load_index(f"{line}\n" * 100)
    assert len(loaded.text.encode()) <= MOST_BYTES
    assert set(loaded.text.split("\n")) == {line}
    assert loaded.warning is not None


def test_one_line_that_is_too_long_is_cut_within() -> None:
    loaded = load_index("ä" * 2_000_000)
    assert 0 < len(loaded.text.encode()) <= MOST_BYTES
    assert loaded.warning is not None


@given(st.text(max_size=400))
def test_what_is_loaded_is_a_beginning_of_the_index(text: str) -> None:
    assert text.startswith(load_index(text * 100).text[: len(text)])


def test_a_new_memory_gets_one_line() -> None:
    memory = added("tabs.md", b"---\nname: Tabs\ndescription: we use tabs\n---\n")
    text = update_index("", [memory])
    assert text == "- [Tabs](tabs.md) \N{EM DASH} we use tabs\n"
    assert update_index(text, [memory]) == text


def test_a_memory_that_is_linked_already_gets_none() -> None:
    text = "# By topic\n* [How we indent](./tabs.md)"
    assert update_index(text, [added("tabs.md"), change("tabs.md", b"a", b"b")]) == text


def test_a_name_within_another_is_another() -> None:
    text = update_index("- [x](my_tabs.md)\n", [added("tabs.md")])
    assert [entry.path for entry in index_lines(text)] == ["my_tabs.md", "tabs.md"]


def test_a_deleted_memory_takes_its_lines_along_and_nothing_else() -> None:
    text = "# Memory\n- [a](a.md)\nabout a.md\n- [b](b.md)\n- [again](a.md)\n"
    assert update_index(text, [removed("a.md")]) == "# Memory\nabout a.md\n- [b](b.md)\n"


def test_a_memory_that_comes_back_brings_its_own_line() -> None:
    back = attrs.evolve(added("a.md"), index_line="- [Mine](a.md): as I want it")
    assert update_index("", [back]) == "- [Mine](a.md): as I want it\n"


def test_logs_and_the_index_have_no_line() -> None:
    assert update_index("", [added("logs/2026/11/2026-11-16.md"), added(INDEX)]) == ""


def test_a_line_that_was_only_begun_is_finished() -> None:
    whole = update_index("- [a](a.md)\n", [added("b.md"), added("c.md")])
    for size in range(len("- [a](a.md)\n"), len(whole)):
        assert update_index(whole[:size], [added("b.md"), added("c.md")]) == whole


def test_a_line_is_cut_but_never_its_link() -> None:
    topic = parse_entry(f"---\nname: a\ndescription: {'long ' * 100}\n---\n".encode(), "a.md")
    assert len(index_line(topic, "a.md")) <= LONGEST_LINE
    assert len(index_line(attrs.evolve(topic, name="long " * 100), "a.md")) <= LONGEST_LINE
    path = f"{'x' * 240}.md"
    assert [entry.path for entry in index_lines(index_line(topic, path))] == [path]


@given(st.text(max_size=60), st.text(max_size=200), st.text(min_size=1, max_size=40))
def test_every_memory_is_found_by_its_line(name: str, description: str, stem: str) -> None:
    path = f"{stem}.md"
    if not is_valid(path):
        return
    content = f"---\nname: {name}\ndescription: {description}\n---\n".encode(errors="replace")
    text = update_index("- [first](first.md)", [added(path, content)])
    if path != "first.md":
        assert [entry.path for entry in index_lines(text)] == ["first.md", path]
        assert update_index(text, [removed(path)]) == "- [first](first.md)\n"


def test_what_was_done_to_an_index_is_taken_back_and_what_came_later_stays() -> None:
    before = "# Memory\n- [a](a.md): mine\n- [b](b.md)\n- [c](c.md)\n"
    after = "# Memory\n- [ab](ab.md)\n- [c](c.md)\n"
    assert revert_index(after, before, after) == before
    later = f"{after}- [new](new.md)\n"
    assert revert_index(later, before, after) == f"{before}- [new](new.md)\n"
