"""Directories of the scopes, and directories that are refused."""

from pathlib import Path

import pytest

from coterie.memory.errors import MemoryRefused
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
