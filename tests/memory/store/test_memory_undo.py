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
    edits: list[tuple[str, bytes | None, bytes | None]] = [
        ("ab.md", None, b"about a and b\n"),
        ("a.md", b"about a\n", None),
        ("b.md", b"about b\n", None),
        ("c.md", b"about c\n", b"about c, once\n"),
        ("c.md", b"about c, once\n", b"about c, twice\n"),
        (INDEX, store.read(INDEX), b"# Sorted\n- [Both](ab.md)\n- [C](c.md)\n"),
    ]
    pending = [PendingEdit(path=path, base=base, content=content) for path, base, content in edits]
    assert store.apply(pending, Author(by="dream"), group="dream-1").dropped == ()
    return "dream-1"


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
    store.write("a.md", b"one\n", AUTHOR, base=b"about a\n")
    store.delete("a.md", AUTHOR, base=b"one\n")
    store.undo("2", USER)
    (store.directory / "c.md").write_bytes(b"by hand\n")
    refusals = {"1": "by 4, 5; undo", "2": "already.* 6", "3": r"c.md has been changed since by another program"}
    for change in ("99", "dream-9", ""):
        refusals[change] = "not in the history"
    for change, reason in refusals.items():
        with pytest.raises(CannotUndo, match=reason):
            store.undo(change, USER)
    assert (store.read("c.md"), len(store.changes())) == (b"by hand\n", 6)
