"""Writes need the current content as their base, and every change is recorded; the start of a store."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import lock_descriptor

from coterie.memory.errors import BaseChanged, MemoryRefused, StoreBusy
from coterie.memory.store import store_lock
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore, exclude_from_git, seed_store
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import LARGEST, PendingEdit

AUTHOR = Author(by="agent", agent="main", session="s1", turn=3, why="the user said so")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore.at(tmp_path / "projects" / "x" / "memory")


def test_write_adds_an_index_line_and_a_change(store: MemoryStore) -> None:
    content = b"---\nname: Tabs\ndescription: we use tabs\ntype: feedback\n---\nAlways.\n"
    change = store.write("style/tabs.md", content, AUTHOR, base=None)
    assert store.read("style/tabs.md") == content
    assert store.read("style/tabs.md", limit=3) == b"---"
    assert store.paths() == ["style/tabs.md"]
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert (store.directory / ".history" / ".gitignore").read_bytes() == b"*\n"
    assert store.index() == "- [Tabs](style/tabs.md) \N{EM DASH} we use tabs\n"
    assert store.changes() == [change]
    assert (change.id, change.author, change.before, change.after) == ("1", AUTHOR, None, content)


def test_write_with_outdated_base_raises_with_current_content(store: MemoryStore) -> None:
    store.write("a.md", b"one\n", AUTHOR, base=None)
    store.write("a.md", b"two\n", AUTHOR, base=b"one\n")
    for base in (b"one\n", None):
        with pytest.raises(BaseChanged) as caught:
            store.write("a.md", b"three\n", AUTHOR, base=base)
        assert caught.value.current == b"two\n"
    for path, current in (("a.md", b"two\n"), ("b.md", None)):
        with pytest.raises(BaseChanged) as caught:
            store.delete(path, AUTHOR, base=b"one\n")
        assert caught.value.current == current
    assert store.read("a.md") == b"two\n"
    assert len(store.changes()) == 2


def test_external_edit_is_recorded_before_it_is_overwritten(store: MemoryStore) -> None:
    store.write("a.md", b"ours\n", AUTHOR, base=None)
    index = store.read(INDEX)
    for path in (INDEX, "a.md", "b.md"):
        (store.directory / path).write_bytes(b"by hand\n")
    with pytest.raises(BaseChanged):
        store.write(INDEX, b"", AUTHOR, base=index)
    store.write(INDEX, b"yours\n", AUTHOR, base=b"by hand\n")
    store.write("a.md", b"ours again\n", AUTHOR, base=b"by hand\n")
    store.delete("b.md", AUTHOR, base=b"by hand\n")
    assert [(c.author.by, c.path, c.before, c.after) for c in store.changes()[1:]] == [
        ("outside", INDEX, index, b"by hand\n"),
        ("agent", INDEX, b"by hand\n", b"yours\n"),
        ("outside", "a.md", b"ours\n", b"by hand\n"),
        ("agent", "a.md", b"by hand\n", b"ours again\n"),
        ("outside", "b.md", None, b"by hand\n"),
        ("agent", "b.md", b"by hand\n", None),
    ]


def test_all_external_edits_are_detected(store: MemoryStore) -> None:
    for name in ("a", "b", "c", "d"):
        store.write(f"{name}.md", b"ours\n", AUTHOR, base=None)
    (store.directory / "a.md").write_bytes(b"\xff by hand\n")
    (store.directory / "b.md").unlink()
    (store.directory / "d.md").unlink()
    (store.directory / "d.md").symlink_to("c.md")
    (store.directory / "new.md").write_bytes(b"new\n")
    (store.directory / INDEX).write_bytes(store.index().encode() + b"a line\n")
    noticed = store.detect_external_changes()
    assert {change.author.by for change in noticed} == {"outside"}
    actions = ("changed MEMORY.md", "changed a.md", "removed b.md", "removed d.md", "added new.md")
    assert tuple(f"{change.action} {change.path}" for change in noticed) == actions
    assert store.detect_external_changes() == []
    assert store.changes()[4:] == noticed
    store.undo(noticed[1].id, AUTHOR)
    assert store.read("a.md") == b"ours\n"


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
    secret = b"password: h7Gk2pQz9Lw4\n"
    (store.directory / "a.md").write_bytes(secret)
    store.write("a.md", secret + b"more\n", AUTHOR, base=secret)  # a secret that is there already blocks no edit


def test_valid_edits_are_applied_in_one_transaction(store: MemoryStore) -> None:
    for name in ("a", "b", "c"):
        store.write(f"{name}.md", b"old\n", AUTHOR, base=None)
    index = b"# Dreamed\n- [All](ab.md)\n- [b](b.md)\n- [a](a.md)\n"
    edits: list[tuple[str, bytes | None, bytes | None]] = [
        ("a.md", b"old\n", None),
        ("b.md", b"something else\n", b"new\n"),
        ("ab.md", None, b"merged\n"),
        ("AB.md", None, b"twin\n"),
        ("../x.md", None, b"x\n"),
        (INDEX, store.read(INDEX), index),
        ("d.md", None, b"unlinked\n"),
    ]
    pending = [PendingEdit(path=path, base=base, content=content) for path, base, content in edits]
    applied = store.apply(pending, Author(by="dream"), group="dream-1")
    assert [change.path for change in applied.changes] == ["a.md", "ab.md", INDEX, "d.md"]
    assert {change.group for change in applied.changes} == {"dream-1"}
    assert [edit.path for edit, _ in applied.dropped] == ["b.md", "AB.md", "../x.md"]
    assert "changed by another writer" in applied.dropped[0][1]
    assert store.paths() == ["ab.md", "b.md", "c.md", "d.md"]
    assert store.index() == "# Dreamed\n- [All](ab.md)\n- [b](b.md)\n- [d](d.md) \N{EM DASH} unlinked\n"


def test_deleted_store_or_change_log_is_created_again(store: MemoryStore) -> None:
    store.write("a.md", b"a\n", AUTHOR, base=None)
    store.directory.rename(store.directory.with_name("away"))
    assert store.paths() == []
    assert store.write("b.md", b"b\n", AUTHOR, base=None).id == "1"
    (store.directory / ".history" / "changes.jsonl").unlink()
    assert (store.paths(), store.changes()) == (["b.md"], [])
    store.write("b.md", b"c\n", AUTHOR, base=b"b\n")
    assert [change.author.by for change in store.changes()] == ["outside", "agent"]


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


def test_empty_store_starts_with_the_snapshot(store: MemoryStore, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "style.md").write_text("Briefly.\n")
    (snapshot / "MEMORY.md").write_text("- [Style](style.md) \N{EM DASH} before you write anything\n")
    (tmp_path / "link").symlink_to(snapshot)
    with pytest.raises(MemoryRefused, match="link"):
        seed_store(store, tmp_path / "link")
    assert seed_store(store, snapshot) == ["style.md"]
    assert (store.read("style.md"), store.index()) == (b"Briefly.\n", (snapshot / "MEMORY.md").read_text())
    assert {change.author.why for change in store.changes()} == {"seeded from the project's snapshot"}
    (snapshot / "more.md").write_text("More.\n")
    assert seed_store(store, snapshot) == [], "a store with memories is not seeded"


def test_local_memory_is_excluded_from_git_once(tmp_path: Path) -> None:
    directory = tmp_path / ".coterie" / "agent-memory-local"
    assert not exclude_from_git(tmp_path, directory), "there is no repository"
    (tmp_path / ".git").mkdir()
    exclude = tmp_path / ".git" / "info" / "exclude"
    assert exclude_from_git(tmp_path, directory)
    assert exclude.read_text() == "/.coterie/agent-memory-local/\n"
    exclude.write_text("*.log")
    assert exclude_from_git(tmp_path, directory)
    assert exclude.read_text() == "*.log\n/.coterie/agent-memory-local/\n"
    assert not exclude_from_git(tmp_path, directory)
