"""The change log alone determines the files and the index of a store."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.memory.store.change import Author, MemoryChange, Writer
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import apply_to_index
from coterie.memory.store.undo import replay


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
