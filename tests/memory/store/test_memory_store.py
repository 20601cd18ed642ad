"""Writes need the current content as their base, and every change is recorded."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import lock_descriptor
from hypothesis import given
from hypothesis import strategies as st

from coterie.clock import Clock
from coterie.memory.errors import BaseChanged, MemoryRefused, StoreBusy
from coterie.memory.store import store_lock
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.change_log import _change, _stored
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import LARGEST, PendingEdit

AUTHOR = Author(by="agent", agent="main", session="s1", turn=3, why="the user said so")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore.at(tmp_path / "projects" / "x" / "memory")


def seen(store: MemoryStore) -> list[tuple[str, str, str]]:
    """Return the change log in short form."""
    return [(change.author.by, change.action, change.path) for change in store.changes()]


def test_missing_store_is_empty_and_not_created(store: MemoryStore) -> None:
    assert (store.paths(), store.read("a.md"), store.index(), store.changes()) == ([], None, "", [])
    assert not store.directory.exists()


def test_write_adds_an_index_line_and_a_change(store: MemoryStore) -> None:
    content = b"---\nname: Tabs\ndescription: we use tabs\ntype: feedback\n---\nAlways.\n"
    change = store.write("style/tabs.md", content, AUTHOR, base=None)
    assert store.read("style/tabs.md") == content
    assert store.read("style/tabs.md", limit=3) == b"---"
    assert store.paths() == ["style/tabs.md"]
    assert store.index() == "- [Tabs](style/tabs.md) \N{EM DASH} we use tabs\n"
    assert store.changes() == [change]
    assert (change.id, change.author, change.before, change.after) == ("1", AUTHOR, None, content)


def test_write_with_outdated_base_raises_with_current_content(store: MemoryStore) -> None:
    store.write("a.md", b"one\n", AUTHOR, base=None)
    store.write("a.md", b"two\n", AUTHOR, base=b"one\n")
    with pytest.raises(BaseChanged) as caught:
        store.write("a.md", b"three\n", AUTHOR, base=b"one\n")
    assert caught.value.current == b"two\n"
    with pytest.raises(BaseChanged):
        store.write("a.md", b"three\n", AUTHOR, base=None)
    with pytest.raises(BaseChanged):
        store.delete("a.md", AUTHOR, base=b"one\n")
    with pytest.raises(BaseChanged) as caught:
        store.delete("b.md", AUTHOR, base=b"one\n")
    assert caught.value.current is None
    assert store.read("a.md") == b"two\n"
    assert len(store.changes()) == 2


def test_deleted_memory_loses_its_index_line(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    store.write("b.md", b"b\n", AUTHOR, base=None)
    change = store.delete("a.md", AUTHOR, base=b"a\n")
    assert (change.action, change.before, change.after) == ("removed", b"a\n", None)
    assert store.paths() == ["b.md"]
    assert [entry.path for entry in index_lines(store.index())] == ["b.md"]


def test_index_can_be_written_like_any_file(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    base = store.read(INDEX)
    store.write(INDEX, b"# Mine\n- [A](a.md): as I like it\n", AUTHOR, base=base)
    store.write("b.md", b"b\n", AUTHOR, base=None)
    assert store.index() == "# Mine\n- [A](a.md): as I like it\n- [b](b.md) \N{EM DASH} b\n"
    with pytest.raises(BaseChanged):
        store.write(INDEX, b"", AUTHOR, base=base)
    assert seen(store) == [("agent", "added", "a.md"), ("agent", "changed", INDEX), ("agent", "added", "b.md")]


def test_external_edit_is_recorded_before_it_is_overwritten(store: MemoryStore) -> None:
    store.write("a.md", b"ours\n", AUTHOR, base=None)
    (store.directory / "a.md").write_bytes(b"by hand\n")
    (store.directory / "b.md").write_bytes(b"b by hand\n")
    store.write("a.md", b"ours again\n", AUTHOR, base=b"by hand\n")
    store.delete("b.md", AUTHOR, base=b"b by hand\n")
    assert [(c.author.by, c.path, c.before, c.after) for c in store.changes()[1:]] == [
        ("outside", "a.md", b"ours\n", b"by hand\n"),
        ("agent", "a.md", b"by hand\n", b"ours again\n"),
        ("outside", "b.md", None, b"b by hand\n"),
        ("agent", "b.md", b"b by hand\n", None),
    ]


def test_all_external_edits_are_detected(store: MemoryStore) -> None:
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", b"ours\n", AUTHOR, base=None)
    assert store.detect_external_changes() == []
    (store.directory / "a.md").write_bytes(b"\xff by hand\n")
    (store.directory / "b.md").unlink()
    (store.directory / "new.md").write_bytes(b"new\n")
    (store.directory / INDEX).write_bytes(store.index().encode() + b"a line\n")
    noticed = store.detect_external_changes()
    assert [(c.author.by, c.action, c.path) for c in noticed] == [
        ("outside", "changed", INDEX),
        ("outside", "changed", "a.md"),
        ("outside", "removed", "b.md"),
        ("outside", "added", "new.md"),
    ]
    assert store.detect_external_changes() == []
    assert store.changes()[-4:] == noticed
    assert store.read("a.md") == b"\xff by hand\n"


def test_external_edit_of_the_index_is_recorded_by_the_next_write(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    before = store.read(INDEX)
    (store.directory / INDEX).write_bytes(b"mine\n")
    store.write(INDEX, b"yours\n", AUTHOR, base=b"mine\n")
    outside = store.changes()[1]
    assert (outside.author.by, outside.before, outside.after) == ("outside", before, b"mine\n")


def test_external_revert_is_not_repeated(store: MemoryStore) -> None:
    store.write("a.md", b"one\n", AUTHOR, base=None)
    store.write("a.md", b"two\n", AUTHOR, base=b"one\n")
    (store.directory / "a.md").write_bytes(b"one\n")
    store.write("b.md", b"b\n", AUTHOR, base=None)
    assert store.read("a.md") == b"one\n"


def test_link_in_place_of_a_memory_counts_as_deletion(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    (store.directory / "a.md").unlink()
    (store.directory / "a.md").symlink_to("elsewhere")
    assert [(change.action, change.path) for change in store.detect_external_changes()] == [("removed", "a.md")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * (LARGEST + 1), "at most 1000000"),
        (b"a\0b", "NUL"),
        (b"caf\xe9\n", "not be valid UTF-8 from byte 3"),
        (b"fine\npassword: h7Gk2pQz9Lw4\n", "a password or token in line 2"),
    ],
)
def test_invalid_memory_is_refused_without_traces(store: MemoryStore, content: bytes, reason: str) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    with pytest.raises(MemoryRefused, match=reason) as caught:
        store.write("a.md", content, AUTHOR, base=b"a\n")
    assert "h7Gk2pQz9Lw4" not in str(caught.value)
    assert store.read("a.md") == b"a\n"
    assert len(store.changes()) == 1


def test_existing_secret_does_not_block_other_edits(store: MemoryStore) -> None:
    store.directory.mkdir(parents=True)
    (store.directory / "a.md").write_bytes(b"password: h7Gk2pQz9Lw4\n")
    store.write("a.md", b"password: h7Gk2pQz9Lw4\nmore\n", AUTHOR, base=b"password: h7Gk2pQz9Lw4\n")


def test_valid_edits_are_applied_in_one_transaction(store: MemoryStore) -> None:
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", b"old\n", AUTHOR, base=None)
    index = store.read(INDEX)
    edits = [
        PendingEdit(path="a.md", base=b"old\n", content=None),
        PendingEdit(path="b.md", base=b"something else\n", content=b"new\n"),
        PendingEdit(path="ab.md", base=None, content=b"merged\n"),
        PendingEdit(path="AB.md", base=None, content=b"twin\n"),
        PendingEdit(path="../x.md", base=None, content=b"x\n"),
        PendingEdit(path=INDEX, base=index, content=b"# Dreamed\n- [All](ab.md)\n- [b](b.md)\n- [a](a.md)\n"),
        PendingEdit(path="d.md", base=None, content=b"unlinked\n"),
    ]
    applied = store.apply(edits, Author(by="dream"), group="dream-1")
    assert [(change.path, change.group) for change in applied.changes] == [
        (path, "dream-1") for path in ("a.md", "ab.md", INDEX, "d.md")
    ]
    assert [edit.path for edit, _ in applied.dropped] == ["b.md", "AB.md", "../x.md"]
    assert "changed by another writer" in applied.dropped[0][1]
    assert store.paths() == ["ab.md", "b.md", "c.md", "d.md"]
    assert store.index() == "# Dreamed\n- [All](ab.md)\n- [b](b.md)\n- [d](d.md) \N{EM DASH} unlinked\n"


def test_ids_grow_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = Clock()
    store = MemoryStore.at(tmp_path / "memory", clock)
    first = store.write("a.md", b"a\n", AUTHOR, base=None)
    clock.advance(-365 * 86400)
    second = store.write("b.md", b"b\n", AUTHOR, base=None)
    assert second.at < first.at
    assert [change.id for change in store.changes()] == ["1", "2"]


def test_deleted_store_directory_is_created_again(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    store.directory.rename(store.directory.with_name("away"))
    assert store.paths() == []
    assert store.write("b.md", b"b\n", AUTHOR, base=None).id == "1"
    assert store.paths() == ["b.md"]


def test_deleted_change_log_starts_with_the_current_files(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    (store.directory / ".history" / "changes.jsonl").unlink()
    assert store.changes() == []
    store.write("a.md", b"b\n", AUTHOR, base=b"a\n")
    assert seen(store) == [("outside", "added", "a.md"), ("agent", "changed", "a.md")]


def test_change_log_is_excluded_from_git(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    assert (store.directory / ".history" / ".gitignore").read_bytes() == b"*\n"


def test_lock_held_by_another_process_raises_after_a_timeout(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    monkeypatch.setattr(store_lock, "LOCK_TIMEOUT", 0.01)
    code = "import fcntl,sys; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(store.directory / ".history" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreBusy, match=r"for more than 0\.01 seconds"):
            store.write("b.md", b"b\n", AUTHOR, base=None)
        assert store.read("a.md") == b"a\n"  # reading needs no lock
        holder.kill()
    monkeypatch.setattr(store_lock, "LOCK_TIMEOUT", 10.0)
    store.write("b.md", b"b\n", AUTHOR, base=None)


def test_lock_deleted_during_the_wait_is_not_used(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    taken: list[int] = []

    def take(descriptor: int, *, blocking: bool) -> bool:
        if not taken:
            (store.directory / ".history").rename(store.directory / ".old")
        taken.append(descriptor)
        return lock_descriptor(descriptor, blocking=blocking)

    monkeypatch.setattr(store_lock, "lock_descriptor", take)
    store.write("b.md", b"b\n", AUTHOR, base=None)
    assert len(taken) == 2
    assert [change.path for change in store.changes()] == ["b.md"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only directories; run the tests as another user")
def test_unwritable_directory_raises_os_error(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    store.directory.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            store.write("b.md", b"b\n", AUTHOR, base=None)
    finally:
        store.directory.chmod(0o700)
    assert len(store.changes()) == 1


@given(st.binary(max_size=50), st.binary(max_size=50), st.text(max_size=20))
def test_change_log_round_trips_any_bytes(before: bytes, after: bytes, why: str) -> None:
    for old, new in ((before, after), (before, before + after), (None, after), (before, None)):
        change = MemoryChange(id="7", at=1.5, author=Author(by="user", why=why), path="a.md", before=old, after=new)
        assert _change(_stored(change)) == change


def test_store_is_private_to_the_user(tmp_path: Path) -> None:
    store = MemoryStore.at(tmp_path / "memory")
    store.write("a.md", b"A fact.\n", Author(by="agent"), base=None)
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
