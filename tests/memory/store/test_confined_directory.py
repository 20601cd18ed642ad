"""Directories of the scopes, and that no path and no link makes a store read or write outside its directory."""

import itertools
import os
import stat
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from coterie import files
from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import check_directory, directory_name, project_scope, snapshot_directory


def test_project_scope_is_in_the_home_directory_by_default(tmp_path: Path) -> None:
    home, given, setting = tmp_path / "home", tmp_path / "given" / "by", tmp_path / "set" / "by"
    assert project_scope(home, "p", variable=None, setting=None).directory == home / "projects/p/memory"
    assert project_scope(home, "p", variable="", setting=setting).directory == setting
    assert project_scope(home, "p", variable=str(given), setting=setting).directory == given


def test_agent_type_has_a_unique_directory(tmp_path: Path) -> None:
    assert snapshot_directory("plugin:reviewer", tmp_path) == tmp_path / "agent-memory-snapshots/plugin-reviewer"
    assert directory_name("Prüfer") == directory_name("Pru\N{COMBINING DIAERESIS}fer") == "Prüfer"
    strange = ["a/b", "a b", "a\\b", "..", ".", "../a", ".hidden", "a\nb", "x" * 200, "x" * 201]
    names = [directory_name(kind) for kind in strange]
    assert len(set(names)) == len(strange)
    assert all(name == Path(name).name and not name.startswith(".") for name in names)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("memories", "absolute"),
        ("../memories", "absolute"),
        ("/", "close to the root"),
        ("/home", "close to the root"),
        ("/srv/../etc", "close to the root"),
        ("/srv/a\0b", "NUL"),
        ("~", "close to the root|all of your files"),
        ("~/..", "close to the root|all of your files"),
        ("~/.ssh", r"inside \.ssh"),
        ("~/.SSH/memories", r"inside \.SSH"),
        ("/srv/project/.git/memories", r"inside \.git"),
    ],
)
def test_unsuitable_directory_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MemoryRefused, match=reason):
        check_directory(text, "memory_directory")


def test_link_to_a_protected_directory_is_refused_also_above_a_missing_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    (tmp_path / "innocent").symlink_to(user / ".ssh")
    with pytest.raises(MemoryRefused, match=r"inside \.ssh"):
        check_directory(str(tmp_path / "innocent" / "new"), "memory_directory")
    (tmp_path / "all").symlink_to(user)
    with pytest.raises(MemoryRefused, match="all of your files"):
        check_directory(str(tmp_path / "all"), "memory_directory")
    assert check_directory("~/memories", "memory_directory") == user / "memories"


ROOT = Path(__file__).parents[3]
AUTHOR = Author(by="agent", agent="main")
COMPOSED = unicodedata.normalize("NFC", "café.md")
DECOMPOSED = unicodedata.normalize("NFD", "café.md")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A store with one memory, next to a file that must not change."""
    store = MemoryStore.at(tmp_path / "memory")
    store.write("here.md", b"here\n", AUTHOR, base=None)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim.md").write_bytes(b"mine\n")
    return store


def put(store: MemoryStore, path: str, content: bytes = b"new\n") -> None:
    """Write to *path* over its current content."""
    store.write(path, content, AUTHOR, base=store.read(path))


def names(directory: Path) -> list[str]:
    """List *directory*."""
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "not a name"),
        ("../outside/victim.md", "leads out of"),
        ("sub/../../outside/victim.md", "leads out of"),
        ("/etc/motd.md", "not inside the memory directory"),
        ("~/notes.md", "not inside the memory directory"),
        ("a\0.md", "a character that is not allowed"),
        ("a\n.md", "a character that is not allowed"),
        ("a\\b.md", "a character that is not allowed"),
        ("a<b>.md", "a character that is not allowed"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}a.md", "a character that is not allowed"),
        ("\udcff.md", "a character that is not allowed"),
        (".hidden.md", "begins with a dot"),
        (".history/x.md", "begins with a dot"),
        ("./a.md", "begins with a dot"),
        ("a//b.md", "empty or begins with a dot"),
        ("a.txt", "not a Markdown file"),
        ("a", "not a Markdown file"),
        ("a.MD", "not a Markdown file"),
        (" a.md", "begins or ends with a space"),
        ("a./b.md", "ends with a dot"),
        (f"{'x' * 253}.md", "more than 255 bytes"),
        (f"{'ä' * 127}.md", "more than 255 bytes"),
        ("/".join(["x"] * 8 + ["a.md"]), "more than 8 levels"),
        ("/".join(["x" * 200] * 6 + ["a.md"]), "longer than 1024 bytes"),
        ("memory.md", "differs only in case from MEMORY.md"),
        ("Logs/a.md", "differs only in case from logs"),
    ],
)
def test_invalid_path_is_refused_with_the_reason(store: MemoryStore, path: str, reason: str) -> None:
    with pytest.raises(MemoryRefused, match=reason):
        store.write(path, b"x", AUTHOR, base=None)
    with pytest.raises(MemoryRefused, match=reason):
        store.read(path)


@pytest.mark.parametrize(
    "path", ["a.md", "sub/deep/er/a.md", "my notes (old).md", "日本語.md", f"{'x' * 252}.md", "a.b-c_d.md"]
)
def test_valid_path_is_written_and_listed(store: MemoryStore, path: str) -> None:
    put(store, path)
    assert store.read(path) == b"new\n"
    assert store.paths() == sorted(["here.md", path])


def test_link_is_neither_read_nor_written(store: MemoryStore, tmp_path: Path) -> None:
    (store.directory / "link.md").symlink_to(tmp_path / "outside" / "victim.md")
    (store.directory / "sub").symlink_to(tmp_path / "outside")
    for path in ("link.md", "sub/victim.md", "sub/new.md"):
        with pytest.raises(MemoryRefused, match="is a link"):
            store.read(path)
        with pytest.raises(MemoryRefused, match="is a link"):
            store.write(path, b"x", AUTHOR, base=None if "new" in path else b"mine\n")
    assert store.paths() == ["here.md"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "outside").iterdir()} == {"victim.md": b"mine\n"}


@pytest.mark.parametrize("name", ["MEMORY.md", ".history", ".history/changes.jsonl", ".history/lock"])
def test_link_in_place_of_store_files_is_not_followed(store: MemoryStore, tmp_path: Path, name: str) -> None:
    target = tmp_path / "outside" / "kept"
    (store.directory / name).rename(target)
    (store.directory / name).symlink_to(target)
    before = target.read_bytes() if target.is_file() else names(target)
    with pytest.raises((MemoryRefused, OSError)):
        store.write("new.md", b"x", AUTHOR, base=None)
    assert before == (target.read_bytes() if target.is_file() else names(target))
    assert not (store.directory / "new.md").exists()


def test_store_may_be_below_a_link_but_not_be_a_link(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store.directory)
    with pytest.raises(MemoryRefused, match="is a link; give the directory"):
        put(MemoryStore.at(tmp_path / "link"), "a.md")
    (tmp_path / "nowhere").symlink_to(tmp_path / "not there")
    with pytest.raises(MemoryRefused, match="is a link; give the directory"):
        put(MemoryStore.at(tmp_path / "nowhere"), "a.md")
    (tmp_path / "above").symlink_to(tmp_path)
    put(MemoryStore.at(tmp_path / "above" / "memory"), "a.md")
    assert store.read("a.md") == b"new\n"


def test_hard_link_is_never_written_through(store: MemoryStore, tmp_path: Path) -> None:
    victim, index = tmp_path / "outside" / "victim.md", tmp_path / "outside" / "index"
    (store.directory / "hard.md").hardlink_to(victim)
    index.hardlink_to(store.directory / "MEMORY.md")
    before = index.read_bytes()
    put(store, "hard.md")
    assert store.read("hard.md") == b"new\n"
    assert "hard.md" in store.index()
    assert (victim.read_bytes(), index.read_bytes()) == (b"mine\n", before)


def test_non_file_is_refused_without_blocking(store: MemoryStore) -> None:
    (store.directory / "directory.md").mkdir()
    os.mkfifo(store.directory / "pipe.md")
    for path in ("directory.md", "pipe.md", "here.md/below.md"):
        with pytest.raises(MemoryRefused, match=r"not a regular file|is a directory|is a file, not a directory"):
            store.read(path)
        with pytest.raises(MemoryRefused, match=r"not a regular file|is a directory|is a file, not a directory"):
            store.write(path, b"x", AUTHOR, base=None)
    assert store.paths() == ["here.md"]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [("Tabs.md", "tabs.md"), ("STRASSE.md", "straße.md"), ("a/B.md", "a/b.md"), ("Sub/a.md", "sub/b.md")],
)
def test_name_that_differs_only_in_case_is_refused(store: MemoryStore, there: str, wanted: str) -> None:
    put(store, there)
    named = there.partition("/")[0] if wanted == "sub/b.md" else there.rpartition("/")[2]
    with pytest.raises(MemoryRefused, match=f"only in case or normal form from {named}"):
        put(store, wanted)


def test_new_names_are_normalised_and_found_in_either_form(store: MemoryStore) -> None:
    put(store, DECOMPOSED)
    assert COMPOSED in names(store.directory)
    put(store, DECOMPOSED, b"newer\n")
    assert store.read(DECOMPOSED) == store.read(COMPOSED) == b"newer\n"
    (store.directory / COMPOSED).rename(store.directory / DECOMPOSED)
    (store.directory / "\udcff.md").write_bytes(b"x")
    assert store.paths() == [DECOMPOSED, "here.md"], "a name that is not UTF-8 is skipped"
    put(store, DECOMPOSED)
    assert store.read(DECOMPOSED) == b"new\n"
    with pytest.raises(MemoryRefused, match="only in case or normal form"):
        store.write(COMPOSED, b"x", AUTHOR, base=None)


def test_file_keeps_its_permissions_and_new_file_uses_umask(store: MemoryStore) -> None:
    (store.directory / "here.md").chmod(0o640)
    put(store, "here.md")
    before = os.umask(0o027)
    try:
        put(store, "new.md")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((store.directory / name).stat().st_mode) for name in ("here.md", "new.md", ".history")]
    assert modes == [0o640, 0o640, 0o700]


def test_link_in_place_of_a_draft_is_not_written_through(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a draft can be guessed: process id and counter."""
    monkeypatch.setattr(files, "_drafts", itertools.count())
    for number in range(9):
        (store.directory / f".coterie-{os.getpid()}-{number}.draft").symlink_to(tmp_path / "outside" / "victim.md")
    put(store, "here.md")
    assert store.read("here.md") == b"new\n"
    assert (tmp_path / "outside" / "victim.md").read_bytes() == b"mine\n"


@pytest.mark.slow
def test_links_swapped_during_writes_are_never_followed(store: MemoryStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (store.directory / "sub").mkdir()
    put(store, "victim.md")
    command = [sys.executable, "-m", "tests.processes.store_worker", "swap", str(store.directory), str(outside)]
    swapping = subprocess.Popen(command, cwd=ROOT)
    try:
        refused = sum(not _is_written(store, f"{number} {'x' * 100}\n".encode()) for number in range(300))
    finally:
        swapping.kill()
        swapping.wait()
    assert refused, "the other process was never in the way"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"victim.md": b"mine\n"}


def _is_written(store: MemoryStore, content: bytes) -> bool:
    for path in ("victim.md", "sub/victim.md"):
        try:
            store.write(path, content, AUTHOR, base=store.read(path))
        except (MemoryRefused, BaseChanged, OSError):
            return False
    return True
