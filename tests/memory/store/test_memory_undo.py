"""Whatever was done to a store can be taken back, as long as nothing came later; and so can that."""

from pathlib import Path

import pytest

from coterie.memory.errors import CannotUndo
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import PendingEdit
from coterie.memory.store.undo import replay

AUTHOR = Author(by="agent", agent="main")
USER = Author(by="user", why="undone")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """With three memories."""
    store = MemoryStore.at(tmp_path / "memory")
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", f"about {name}\n".encode(), AUTHOR, base=None)
    return store


def contents(store: MemoryStore) -> dict[str, bytes | None]:
    """All that there is."""
    return {path: store.read(path) for path in [*store.paths(), INDEX]}


def dream(store: MemoryStore) -> str:
    """Merge two memories into a third, as a group."""
    edits = [
        PendingEdit(path="ab.md", base=None, content=b"about a and b\n"),
        PendingEdit(path="a.md", base=b"about a\n", content=None),
        PendingEdit(path="b.md", base=b"about b\n", content=None),
        PendingEdit(path="c.md", base=b"about c\n", content=b"about c, once\n"),
        PendingEdit(path="c.md", base=b"about c, once\n", content=b"about c, twice\n"),
        PendingEdit(path=INDEX, base=store.read(INDEX), content=b"# Sorted\n- [Both](ab.md)\n- [C](c.md)\n"),
    ]
    assert store.apply(edits, Author(by="dream"), group="dream-1").dropped == ()
    return "dream-1"


@pytest.mark.parametrize("kind", ["add", "change", "delete"])
def test_a_change_is_undone_and_the_undoing_too(store: MemoryStore, kind: str) -> None:
    before = contents(store)
    if kind == "add":
        change = store.write("new.md", b"new\n", AUTHOR, base=None)
    elif kind == "change":
        change = store.write("a.md", b"new\n", AUTHOR, base=b"about a\n")
    else:
        change = store.delete("c.md", AUTHOR, base=b"about c\n")
    after = contents(store)
    (undone,) = store.undo(change.id, USER)
    assert contents(store) == before
    assert (undone.undoes, undone.author, undone.before, undone.after) == (change.id, USER, change.after, change.before)
    store.undo(undone.id, USER)
    assert contents(store) == after
    assert replay(store.batches()) == after


def test_a_memory_comes_back_with_the_line_that_somebody_wrote_for_it(store: MemoryStore) -> None:
    store.write(INDEX, b"- [Mine](a.md): read me first\n", AUTHOR, base=store.read(INDEX))
    change = store.delete("a.md", AUTHOR, base=b"about a\n")
    assert store.index() == ""
    store.undo(change.id, USER)
    assert store.index() == "- [Mine](a.md): read me first\n"


def test_a_group_is_undone_as_one_and_so_is_its_undoing(store: MemoryStore) -> None:
    before = contents(store)
    group = dream(store)
    after = contents(store)
    undone = store.undo(group, USER)
    assert contents(store) == before
    assert [change.path for change in undone] == [INDEX, "c.md", "c.md", "b.md", "a.md", "ab.md"]
    assert {change.group for change in undone} == {f"undo-{undone[0].id}"}
    assert undone[0].group is not None
    store.undo(undone[0].group, USER)
    assert contents(store) == after
    assert replay(store.batches()) == after


def test_what_came_into_the_index_since_stays_when_a_group_is_undone(store: MemoryStore) -> None:
    before = store.index()
    group = dream(store)
    store.write("new.md", b"new\n", AUTHOR, base=None)
    store.undo(group, USER)
    assert store.index() == f"{before}- [new](new.md) \N{EM DASH} new\n"
    assert store.paths() == ["a.md", "b.md", "c.md", "new.md"]


def test_of_a_group_nothing_is_undone_if_one_cannot_be(store: MemoryStore) -> None:
    group = dream(store)
    later = store.write("ab.md", b"later\n", AUTHOR, base=b"about a and b\n")
    before = contents(store)
    with pytest.raises(CannotUndo, match=f"ab.md has been changed since, by {later.id}; undo"):
        store.undo(group, USER)
    assert contents(store) == before
    assert store.changes()[-1] == later


def test_what_was_changed_since_is_not_undone_and_the_later_ones_are_named(store: MemoryStore) -> None:
    first = store.write("a.md", b"one\n", AUTHOR, base=b"about a\n")
    store.write("a.md", b"two\n", AUTHOR, base=b"one\n")
    store.delete("a.md", AUTHOR, base=b"two\n")
    with pytest.raises(CannotUndo, match="by 5, 6; undo"):
        store.undo(first.id, USER)


def test_what_was_undone_is_not_undone_again(store: MemoryStore) -> None:
    store.undo("1", USER)
    with pytest.raises(CannotUndo, match="1 .*already.* 4"):
        store.undo("1", USER)


def test_what_was_changed_by_hand_since_is_not_undone(store: MemoryStore) -> None:
    (store.directory / "a.md").write_bytes(b"by hand\n")
    with pytest.raises(CannotUndo, match="a.md has been changed since"):
        store.undo("1", USER)
    assert store.read("a.md") == b"by hand\n"


def test_what_was_done_by_hand_is_undone_as_well(store: MemoryStore) -> None:
    (store.directory / "a.md").write_bytes(b"\xff by hand\n")
    (noticed,) = store.detect_external_changes()
    store.undo(noticed.id, USER)
    assert store.read("a.md") == b"about a\n"


@pytest.mark.parametrize("wanted", ["99", "dream-9", "", "nonsense"])
def test_what_is_not_in_the_history_cannot_be_undone(store: MemoryStore, wanted: str) -> None:
    with pytest.raises(CannotUndo, match="not in the history"):
        store.undo(wanted, USER)
