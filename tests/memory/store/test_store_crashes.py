"""A write that ends at any step, by a crash or a bad disk, leaves the old state or the new one, and a true history."""

import errno
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
    """The process has ended: nothing of it catches this."""


@attrs.define(eq=False)
class Ending:
    """Lets the operation number *at* fail, or end the process; with *torn*, after half of its bytes."""

    at: int
    is_crash: bool
    is_lasting: bool
    """Whether all that follows fails too."""
    torn: bool = False
    seen: int = 0

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        self.seen += 1
        if self.seen < self.at or (self.seen > self.at and not self.is_lasting):
            return size
        if self.torn and self.seen == self.at and operation == "write":
            return size // 2
        if self.is_crash:
            raise Crash
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def edit(store: MemoryStore) -> None:
    store.write("a.md", b"new a\n", AUTHOR, base=b"about a\n")


def add(store: MemoryStore) -> None:
    store.write("sub/new.md", b"new\n", AUTHOR, base=None)


def delete(store: MemoryStore) -> None:
    store.delete("a.md", AUTHOR, base=b"about a\n")


def over_a_hand_edit(store: MemoryStore) -> None:
    store.write("b.md", b"new b\n", AUTHOR, base=b"by hand\n")


def together(store: MemoryStore) -> None:
    edits = [
        PendingEdit(path="ab.md", base=None, content=b"both\n"),
        PendingEdit(path="a.md", base=b"about a\n", content=None),
        PendingEdit(path="b.md", base=b"by hand\n", content=b"less\n"),
        PendingEdit(path=INDEX, base=store.read(INDEX), content=b"# Sorted\n- [b](b.md)\n"),
        PendingEdit(path="more.md", base=None, content=b"more\n"),
    ]
    assert not store.apply(edits, AUTHOR, group="dream").dropped


def undo(store: MemoryStore) -> None:
    store.undo("g", AUTHOR)


WRITES: list[Callable[[MemoryStore], None]] = [edit, add, delete, over_a_hand_edit, together, undo]


def made(directory: Path) -> MemoryStore:
    """Two memories, a group of two more, and a hand edit."""
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
    tmp_path: Path,
    write: Callable[[MemoryStore], None],
    judge: Callable[[MemoryStore, Files, Files, BaseException], None],
    **how: bool,
) -> None:
    """Let *write* end at its first step, its second, and so on; *judge* is told what was before, and would be after."""
    whole = made(tmp_path / "whole")
    before = contents(whole)
    write(whole)
    after = contents(whole)
    for at in range(1, 100):
        store = made(tmp_path / str(at))
        ending = Ending(at, **how)
        try:
            with file_faults(ending):
                write(store)
        except (Crash, OSError) as exc:
            judge(store, before, after, exc)
        if ending.seen < at:
            assert at > 4, "the hook was hardly asked"
            return
        check(store, before, after)
    pytest.fail("it never came to an end")


def check(store: MemoryStore, before: Files, after: Files) -> None:
    """After one more write, the store is as it was or as it should be, and its history says how it came to that."""
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
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
def test_a_crash_at_any_step_is_finished_by_the_next_writer(
    tmp_path: Path, write: Callable[[MemoryStore], None], torn: bool
) -> None:
    def judge(store: MemoryStore, before: Files, after: Files, exc: BaseException) -> None:
        assert isinstance(exc, Crash)

    end_at_every_step(tmp_path, write, judge, is_crash=True, is_lasting=True, torn=torn)


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
def test_a_step_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, write: Callable[[MemoryStore], None], torn: bool
) -> None:
    def judge(store: MemoryStore, before: Files, after: Files, exc: BaseException) -> None:
        assert isinstance(exc, OSError)
        assert contents(store) == before
        assert len(store.changes()) == 4

    end_at_every_step(tmp_path, write, judge, is_crash=False, is_lasting=False, torn=torn)


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_disk_that_takes_nothing_more_leaves_what_the_next_writer_can_finish(
    tmp_path: Path, write: Callable[[MemoryStore], None]
) -> None:
    def judge(store: MemoryStore, before: Files, after: Files, exc: BaseException) -> None:
        assert isinstance(exc, OSError)

    end_at_every_step(tmp_path, write, judge, is_crash=False, is_lasting=True)


def test_a_torn_record_never_happened(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    whole = history.read_bytes()
    record = frame_record(b'{"changes":[{"id":5,"at":1.0,"author":{"by":"user"},"path":"z.md","after":"z"}]}')
    for size in range(len(record)):
        history.write_bytes(whole + record[:size])
        assert len(store.changes()) == 4
    store.write("y.md", b"y\n", AUTHOR, base=None)
    assert [change.path for change in store.changes()] == ["a.md", "b.md", "g.md", "h.md", "y.md"]
    assert b'"z.md"' not in history.read_bytes()


def test_a_whole_record_that_nobody_carried_out_is_carried_out(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    record = frame_record(b'{"changes":[{"id":5,"at":1.0,"author":{"by":"user"},"path":"z.md","after":"z"}]}')
    history.write_bytes(history.read_bytes() + record)
    assert store.write("y.md", b"y\n", AUTHOR, base=None).id == "6"
    assert store.read("z.md") == b"z"
    assert [entry.path for entry in index_lines(store.index())][-2:] == ["z.md", "y.md"]


def test_what_was_written_past_the_store_after_a_crash_is_not_written_over(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    record = frame_record(
        b'{"changes":[{"id":5,"at":1.0,"author":{"by":"user"},"path":"a.md","before":"about a\\n","after":"new"}]}'
    )
    history.write_bytes(history.read_bytes() + record)
    (store.directory / "a.md").write_bytes(b"by hand\n")
    store.write("y.md", b"y\n", AUTHOR, base=None)
    assert store.read("a.md") == b"by hand\n"


def test_a_record_survives_a_power_cut_before_any_file_is_touched(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    done: list[str] = []

    class Watching:
        def before(self, operation: Operation, path: Path, size: int) -> int:
            done.append(f"{operation} {'draft' if path.suffix == '.draft' else path.name}")
            return size

    with file_faults(Watching()):
        store.write("new.md", b"new\n", AUTHOR, base=None)
    assert done == [
        "write changes.jsonl",
        "fsync changes.jsonl",
        "write draft",
        "fsync draft",
        "rename new.md",
        "fsync memory",
        "write MEMORY.md",
        "fsync MEMORY.md",
        "write changes.jsonl",
    ]


def test_a_link_in_the_place_of_what_was_to_be_finished_hinders_nobody(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    record = frame_record(b'{"changes":[{"id":5,"at":1.0,"author":{"by":"user"},"path":"z.md","after":"z"}]}')
    history.write_bytes(history.read_bytes() + record)
    (store.directory / "z.md").symlink_to(tmp_path / "elsewhere")
    store.write("y.md", b"y\n", AUTHOR, base=None)
    assert not (tmp_path / "elsewhere").exists()


def test_damage_in_the_middle_of_a_history_costs_what_is_damaged(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    history = store.directory / ".history" / "changes.jsonl"
    content = history.read_bytes()
    history.write_bytes(content.replace(b"about b", b"about X") + b"\nno record\n\n\n")
    assert [change.path for change in store.changes()] == ["a.md", "g.md", "h.md"]
    assert store.write("y.md", b"y\n", AUTHOR, base=None).id == "5"


def test_the_history_of_a_file_is_found_however_far_back_it_lies(tmp_path: Path) -> None:
    store = made(tmp_path / "memory")
    for number in range(4):
        store.write(f"big{number}.md", b"x" * 700_000, AUTHOR, base=None)
    store.write("a.md", b"new\n", AUTHOR, base=b"about a\n")
    store.write("big0.md", b"small\n", AUTHOR, base=b"x" * 700_000)
    assert [change.author.by for change in store.changes()] == ["agent"] * 10
