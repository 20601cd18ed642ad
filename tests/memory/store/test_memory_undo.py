"""Every change can be undone if nothing has changed since, and the undo can be undone too."""

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
    """A store with three memories."""
    store = MemoryStore.at(tmp_path / "memory")
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", f"about {name}\n".encode(), AUTHOR, base=None)
    return store


def contents(store: MemoryStore) -> dict[str, bytes | None]:
    """Return the content of all files."""
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
def test_undo_can_be_undone(store: MemoryStore, kind: str) -> None:
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


def test_restored_memory_gets_its_own_index_line_back(store: MemoryStore) -> None:
    store.write(INDEX, b"- [Mine](a.md): read me first\n", AUTHOR, base=store.read(INDEX))
    change = store.delete("a.md", AUTHOR, base=b"about a\n")
    assert store.index() == ""
    store.undo(change.id, USER)
    assert store.index() == "- [Mine](a.md): read me first\n"


def test_group_is_undone_and_redone_as_a_whole(store: MemoryStore) -> None:
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


def test_later_index_lines_stay_when_a_group_is_undone(store: MemoryStore) -> None:
    before = store.index()
    group = dream(store)
    store.write("new.md", b"new\n", AUTHOR, base=None)
    store.undo(group, USER)
    assert store.index() == f"{before}- [new](new.md) \N{EM DASH} new\n"
    assert store.paths() == ["a.md", "b.md", "c.md", "new.md"]


def test_group_is_not_undone_when_one_change_cannot_be(store: MemoryStore) -> None:
    group = dream(store)
    later = store.write("ab.md", b"later\n", AUTHOR, base=b"about a and b\n")
    before = contents(store)
    with pytest.raises(CannotUndo, match=f"ab.md has been changed since, by {later.id}; undo"):
        store.undo(group, USER)
    assert contents(store) == before
    assert store.changes()[-1] == later


def test_undo_is_refused_with_the_later_changes(store: MemoryStore) -> None:
    first = store.write("a.md", b"one\n", AUTHOR, base=b"about a\n")
    store.write("a.md", b"two\n", AUTHOR, base=b"one\n")
    store.delete("a.md", AUTHOR, base=b"two\n")
    with pytest.raises(CannotUndo, match="by 5, 6; undo"):
        store.undo(first.id, USER)


def test_change_is_not_undone_twice(store: MemoryStore) -> None:
    store.undo("1", USER)
    with pytest.raises(CannotUndo, match=r"1 .*already.* 4"):
        store.undo("1", USER)


def test_undo_is_refused_after_an_external_edit(store: MemoryStore) -> None:
    (store.directory / "a.md").write_bytes(b"by hand\n")
    with pytest.raises(CannotUndo, match=r"a.md has been changed since"):
        store.undo("1", USER)
    assert store.read("a.md") == b"by hand\n"


def test_external_edit_can_be_undone(store: MemoryStore) -> None:
    (store.directory / "a.md").write_bytes(b"\xff by hand\n")
    (noticed,) = store.detect_external_changes()
    store.undo(noticed.id, USER)
    assert store.read("a.md") == b"about a\n"


@pytest.mark.parametrize("wanted", ["99", "dream-9", "", "nonsense"])
def test_unknown_change_cannot_be_undone(store: MemoryStore, wanted: str) -> None:
    with pytest.raises(CannotUndo, match="not in the history"):
        store.undo(wanted, USER)
