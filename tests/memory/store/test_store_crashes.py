"""A write that ends at any step, leaves the old or the new state and a valid change log."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from coterie.files import Operation, file_faults, frame_record
from coterie.memory.store.change import Author
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import PendingEdit
from coterie.memory.store.undo import replay

AUTHOR = Author(by="agent", agent="main")
Files = dict[str, bytes | None]


class Crash(BaseException):
    """The end of the process; no product code catches this."""


@attrs.define(eq=False)
class Ending:
    """Makes operation number *at* fail, or end the process; with *torn*, after half of its bytes."""

    at: int
    is_crash: bool
    is_lasting: bool
    """True if all later operations fail too."""
    torn: bool = False
    seen: int = 0

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Implement `FaultHook.before`."""
        self.seen += 1
        if self.seen < self.at or (self.seen > self.at and not self.is_lasting):
            return size
        if self.torn and self.seen == self.at and operation == "write":
            return size // 2
        if self.is_crash:
            raise Crash
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def apply_group(store: MemoryStore) -> None:
    edits = [
        PendingEdit(path="ab.md", base=None, content=b"both\n"),
        PendingEdit(path="a.md", base=b"about a\n", content=None),
        PendingEdit(path="b.md", base=b"by hand\n", content=b"less\n"),
        PendingEdit(path=INDEX, base=store.read(INDEX), content=b"# Sorted\n- [b](b.md)\n"),
        PendingEdit(path="more.md", base=None, content=b"more\n"),
    ]
    assert not store.apply(edits, AUTHOR, group="dream").dropped


WRITES: dict[str, Callable[[MemoryStore], object]] = {
    "edit": lambda store: store.write("a.md", b"new a\n", AUTHOR, base=b"about a\n"),
    "add": lambda store: store.write("sub/new.md", b"new\n", AUTHOR, base=None),
    "delete": lambda store: store.delete("a.md", AUTHOR, base=b"about a\n"),
    "over a hand edit": lambda store: store.write("b.md", b"new b\n", AUTHOR, base=b"by hand\n"),
    "group": apply_group,
    "undo": lambda store: store.undo("g", AUTHOR),
}


def made(directory: Path) -> MemoryStore:
    """Create a store with two memories, a group of two more, and an external edit."""
    store = MemoryStore.at(directory)
    for name in ("a", "b"):
        store.write(f"{name}.md", f"about {name}\n".encode(), AUTHOR, base=None)
    edits = [PendingEdit(path=f"{name}.md", base=None, content=b"of a group\n") for name in ("g", "h")]
    store.apply(edits, AUTHOR, group="g")
    (directory / "b.md").write_bytes(b"by hand\n")
    return store


def contents(store: MemoryStore) -> Files:
    return {path: store.read(path) for path in [*store.paths(), INDEX]}


def end_at_every_step(
    tmp_path: Path, write: str, judge: Callable[[MemoryStore, Files, BaseException], None], **how: bool
) -> None:
    """End *write* at its first step, its second, and so on; call *judge* with the files before."""
    whole = made(tmp_path / "whole")
    before = contents(whole)
    WRITES[write](whole)
    after = contents(whole)
    for at in range(1, 100):
        store = made(tmp_path / str(at))
        ending = Ending(at, **how)
        try:
            with file_faults(ending):
                WRITES[write](store)
        except (Crash, OSError) as exc:
            judge(store, before, exc)
        if ending.seen < at:
            assert at > 4, "the hook was hardly asked"
            return
        check(store, before, after)
    pytest.fail("it never came to an end")


def check(store: MemoryStore, before: Files, after: Files) -> None:
    """Check that, after one more write, the store has the old or the new state, and a matching change log."""
    count = len(store.changes())
    store.write("last.md", b"last\n", AUTHOR, base=None)
    now = contents(store)
    now.pop("last.md")
    now[INDEX] = (now[INDEX] or b"").replace("- [last](last.md) \N{EM DASH} last\n".encode(), b"")
    assert now in (before, after)
    assert (now == after) == (count > 4)
    assert [entry.path for entry in index_lines(store.index())].count("last.md") == 1
    assert [int(change.id) for change in store.changes()] == list(range(1, len(store.changes()) + 1))
    known = replay(store.batches())
    if "b.md" in known and now["b.md"] == b"by hand\n":
        known["b.md"] = b"by hand\n"
    assert known == contents(store)
    assert not list(store.directory.rglob("*.draft"))


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("ending", ["crash", "torn crash", "failing disk"])
def test_crash_at_any_step_is_completed_by_the_next_writer(tmp_path: Path, write: str, ending: str) -> None:
    def judge(store: MemoryStore, before: Files, exc: BaseException) -> None:
        assert isinstance(exc, OSError if ending == "failing disk" else Crash)

    end_at_every_step(
        tmp_path, write, judge, is_crash=ending != "failing disk", is_lasting=True, torn=ending == "torn crash"
    )


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
def test_failure_at_any_step_leaves_the_store_unchanged(tmp_path: Path, write: str, torn: bool) -> None:
    def judge(store: MemoryStore, before: Files, exc: BaseException) -> None:
        assert isinstance(exc, OSError)
        assert contents(store) == before
        assert len(store.changes()) == 4

    end_at_every_step(tmp_path, write, judge, is_crash=False, is_lasting=False, torn=torn)


def pending(*changes: dict[str, object]) -> bytes:
    """Return the log record of changes whose writer ended before it changed the files."""
    facts = {"at": 1.0, "author": {"by": "user"}, "after": "new"}
    batch = [{"id": number, **facts, **change} for number, change in enumerate(changes, start=5)]
    return frame_record(json.dumps({"changes": batch}).encode())


def test_torn_record_counts_as_not_written(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    whole = history.read_bytes()
    record = pending({"path": "z.md"})
    for size in range(len(record)):
        history.write_bytes(whole + record[:size])
        assert len(store.changes()) == 4
    store.write("y.md", b"y\n", AUTHOR, base=None)
    assert [change.path for change in store.changes()] == ["a.md", "b.md", "g.md", "h.md", "y.md"]
    assert b'"z.md"' not in history.read_bytes()


def test_complete_record_is_applied_by_the_next_writer(tmp_path: Path) -> None:
    """Unless a file was edited since, or is a link."""
    store = made(tmp_path / "memory")
    with (store.directory / ".history" / "changes.jsonl").open("ab") as history:
        history.write(pending({"path": "z.md"}, {"path": "a.md", "before": "about a\n"}, {"path": "link.md"}))
    (store.directory / "a.md").write_bytes(b"by hand\n")
    (store.directory / "link.md").symlink_to(tmp_path / "elsewhere")
    assert int(store.write("y.md", b"y\n", AUTHOR, base=None).id) > 7
    assert (store.read("z.md"), store.read("a.md")) == (b"new", b"by hand\n")
    assert {"z.md", "y.md"} <= {entry.path for entry in index_lines(store.index())}
    assert not (tmp_path / "elsewhere").exists()


def test_record_is_durable_before_any_file_changes(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    done: list[str] = []

    class Watching:
        def before(self, operation: Operation, path: Path, size: int) -> int:
            done.append(f"{operation} {'draft' if path.suffix == '.draft' else path.name}")
            return size

    with file_faults(Watching()):
        store.write("new.md", b"new\n", AUTHOR, base=None)
    assert done == [
        *("write changes.jsonl", "fsync changes.jsonl"),
        *("write draft", "fsync draft", "rename new.md", "fsync memory"),
        *("write MEMORY.md", "fsync MEMORY.md", "write changes.jsonl"),
    ]


def test_damage_in_the_change_log_affects_only_its_records(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    content = history.read_bytes()
    history.write_bytes(content.replace(b"about b", b"about X") + b"\nno record\n\n\n")
    assert [change.path for change in store.changes()] == ["a.md", "g.md", "h.md"]
    assert store.write("y.md", b"y\n", AUTHOR, base=None).id == "5"


def test_last_content_is_found_far_back_in_the_log(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    for number in range(4):
        store.write(f"big{number}.md", b"x" * 700_000, AUTHOR, base=None)
    store.write("a.md", b"new\n", AUTHOR, base=b"about a\n")
    store.write("big0.md", b"small\n", AUTHOR, base=b"x" * 700_000)
    assert [change.author.by for change in store.changes()] == ["agent"] * 10
