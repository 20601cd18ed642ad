"""The change log alone determines the files and the index; every change can be undone, and the undo too."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.memory.errors import CannotUndo
from coterie.memory.store.change import Author, MemoryChange, Writer
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import PendingEdit, apply_to_index
from coterie.memory.store.undo import replay
from tests.examples import examples

AUTHOR = Author(by="agent", agent="main")
USER = Author(by="user", why="undone")


def change(path: str, after: bytes | None, by: Writer) -> MemoryChange:
    return MemoryChange(id="1", at=0.0, author=Author(by=by), path=path, before=b"whatever", after=after)


CHANGES = st.builds(
    change,
    st.sampled_from(["a.md", "b.md", "sub/a.md", "logs/a.md", INDEX, INDEX]),
    st.sampled_from([None, b"", b"about it\n", b"- [A](a.md)", b"- [a](a.md)\n- [b](b.md)\n", b"\xff\n"]),
    st.sampled_from(["agent", "outside"]),
)


def outside_first(batch: list[MemoryChange]) -> list[MemoryChange]:
    """Order *batch* as a store records it: edits that bypassed the store were noticed before its own."""
    return sorted(batch, key=lambda change: change.author.by != "outside")


BATCHES = st.lists(CHANGES, min_size=1, max_size=3).map(outside_first)


@pytest.mark.slow
@given(st.lists(BATCHES, max_size=12))
@example([[change("a.md", b"about it\n", "agent"), change("a.md", None, "agent")]])
def test_replay_of_batches_equals_replay_of_single_changes(batches: list[list[MemoryChange]]) -> None:
    files: dict[str, bytes | None] = {}
    for changes in batches:
        files |= {change.path: change.after for change in changes}
        files[INDEX] = apply_to_index(files.get(INDEX), changes)
    assert replay(batches) == {path: content for path, content in files.items() if content is not None}


TEXTS = [None, b"one\n", b"one\ntwo\n", b"---\nname: N\ndescription: d\n---\n"]
PATHS = st.sampled_from(["a.md", "b.md", "sub/a.md", "logs/a.md"])
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.sampled_from(TEXTS)),
    st.tuples(st.just("by hand"), PATHS, st.sampled_from(TEXTS) | st.binary(max_size=20)),
)


def contents(store: MemoryStore) -> dict[str, bytes]:
    """Return the content of all files, and of the index if there is one."""
    paths = (*store.paths(), "logs/a.md", INDEX)
    return {path: content for path in paths if (content := store.read(path)) is not None}


@pytest.mark.slow
@examples(30)
@given(st.lists(STEPS, max_size=8))
def test_any_history_is_recorded_and_undone_step_by_step(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bytes | None]]
) -> None:
    """Edits by hand are part of it; an undo can be undone, and the undo of all leads back to the empty store."""
    store = MemoryStore.at(tmp_path_factory.mktemp("store") / "memory")
    states: list[dict[str, bytes]] = [{}]
    for action, path, content in steps:
        before, file = store.read(path), store.directory / path
        if content == before:
            continue
        if action == "write" and content is not None:
            store.write(path, content, AUTHOR, base=before)
        elif action == "write":
            store.delete(path, AUTHOR, base=before or b"")
        elif content is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        noticed = store.detect_external_changes()
        assert [change.author.by for change in noticed] == ["outside"] * (action == "by hand")
        last = store.changes()[-1]
        assert (int(last.id), last.path, last.before, last.after) == (len(states), path, before, content)
        states.append(contents(store))
        assert states[-1].get(path) == content
        assert replay(store.batches()) == states[-1]
    for change, state in zip(reversed(store.changes()), reversed(states[:-1]), strict=True):
        (undone,) = store.undo(change.id, USER)
        assert (undone.undoes, undone.author) == (change.id, USER)
        assert (undone.before, undone.after) == (change.after, change.before)
        assert {**contents(store), INDEX: b""} == {**state, INDEX: b""}
    if len(states) > 1:
        assert store.undo(store.changes()[-1].id, USER)
        assert replay(store.batches()) == contents(store)


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A store with three memories."""
    store = MemoryStore.at(tmp_path / "memory")
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", f"about {name}\n".encode(), AUTHOR, base=None)
    return store


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
    again = f"undo-{undone[0].id}"
    assert {change.group for change in undone} == {again}
    undone = store.undo(again, USER)
    assert contents(store) == after
    assert replay(store.batches()) == after
    store.write("new.md", b"new\n", AUTHOR, base=None)
    store.undo(f"undo-{undone[0].id}", USER)
    assert store.index().encode() == before[INDEX] + "- [new](new.md) \N{EM DASH} new\n".encode()
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
