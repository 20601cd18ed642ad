"""Initial memories of an agent type."""

from pathlib import Path

import pytest

from coterie.memory.errors import MemoryRefused
from coterie.memory.store.memory_store import MemoryStore, exclude_from_git, seed_store

STYLE = "---\nname: Style\ndescription: how we write\ntype: feedback\n---\nBriefly.\n"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot that a project gives to an agent type."""
    directory = tmp_path / "snapshot"
    directory.mkdir()
    (directory / "house-style.md").write_text(STYLE)
    return directory


def test_empty_store_starts_with_the_snapshot(tmp_path: Path, snapshot: Path) -> None:
    store = MemoryStore.at(tmp_path / "memory")
    assert seed_store(store, snapshot) == ["house-style.md"]
    assert (store.read("house-style.md") or b"").decode() == STYLE
    assert "(house-style.md)" in store.index()
    assert [change.author.why for change in store.changes()] == ["seeded from the project's snapshot"]
    (snapshot / "more.md").write_text(STYLE)
    assert seed_store(store, snapshot) == [], "a store with memories is not seeded"


def test_snapshot_index_is_copied_with_its_hooks(tmp_path: Path, snapshot: Path) -> None:
    (snapshot / "MEMORY.md").write_text("- [Style](house-style.md) \N{EM DASH} before you write anything\n")
    store = MemoryStore.at(tmp_path / "memory")
    seed_store(store, snapshot)
    assert store.index() == (snapshot / "MEMORY.md").read_text()


def test_nothing_is_created_without_a_snapshot(tmp_path: Path) -> None:
    assert seed_store(MemoryStore.at(tmp_path / "memory"), tmp_path / "nothing") == []
    assert not (tmp_path / "memory").exists()


def test_snapshot_that_is_a_link_is_refused(tmp_path: Path, snapshot: Path) -> None:
    (tmp_path / "link").symlink_to(snapshot)
    with pytest.raises(MemoryRefused, match="link"):
        seed_store(MemoryStore.at(tmp_path / "memory"), tmp_path / "link")


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
