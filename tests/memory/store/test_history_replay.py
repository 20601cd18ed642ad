"""The change log alone determines the files and the index of a store."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.memory.store.change import Author, MemoryChange, Writer
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import apply_to_index
from coterie.memory.store.undo import replay
from tests.examples import examples

AUTHOR = Author(by="user")


def change(path: str, after: bytes | None, by: Writer) -> MemoryChange:
    return MemoryChange(id="1", at=0.0, author=Author(by=by), path=path, before=b"whatever", after=after)


CHANGES = st.builds(
    change,
    st.sampled_from(["a.md", "b.md", "sub/a.md", "logs/a.md"]),
    st.sampled_from([None, b"about it\n", b"---\nname: N\ndescription: d\n---\n"]),
    st.sampled_from(["agent", "outside"]),
)
INDEXES = st.builds(
    change,
    st.just(INDEX),
    st.sampled_from([None, b"", b"# Mine\n", b"- [A](a.md)", b"- [a](a.md)\n- [b](b.md)\n", b"\xff\n"]),
    st.sampled_from(["agent", "outside"]),
)


def outside_first(batch: list[MemoryChange]) -> list[MemoryChange]:
    """Order *batch* as a store records it: edits that bypassed the store were noticed before its own."""
    return sorted(batch, key=lambda change: change.author.by != "outside")


BATCHES = st.lists(CHANGES | INDEXES, min_size=1, max_size=3).map(outside_first)


@pytest.mark.slow
@given(st.lists(BATCHES, max_size=12))
@example([[change("a.md", b"about it\n", "agent"), change("a.md", None, "agent")]])
def test_replay_of_batches_equals_replay_of_single_changes(batches: list[list[MemoryChange]]) -> None:
    files: dict[str, bytes | None] = {}
    for changes in batches:
        files |= {change.path: change.after for change in changes}
        files[INDEX] = apply_to_index(files.get(INDEX), changes)
    assert replay(batches) == {path: content for path, content in files.items() if content is not None}


STEPS = st.tuples(
    st.sampled_from(["write", "by hand"]),
    st.sampled_from(["a.md", "b.md", "sub/a.md", "logs/a.md"]),
    st.sampled_from([None, b"one\n", b"two\n", b"---\nname: N\ndescription: d\n---\n"]),
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
        (undone,) = store.undo(change.id, AUTHOR)
        assert (undone.undoes, undone.before, undone.after) == (change.id, change.after, change.before)
        assert {**contents(store), INDEX: b""} == {**state, INDEX: b""}
    if len(states) > 1:
        assert store.undo(store.changes()[-1].id, AUTHOR)
        assert replay(store.batches()) == contents(store)
