"""Tests of project roots with checkouts made by git."""

import os
import subprocess
from pathlib import Path

import pytest

from coterie.paths import checkout_root, project_directory, project_root

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")


def _git(directory: Path, *arguments: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *IDENTITY, *arguments], cwd=directory, env=environment, check=True, capture_output=True)  # noqa: S607 - whichever git there is


def _repository(path: Path) -> Path:
    path.mkdir(parents=True)
    _git(path, "init", "-q")
    _git(path, "commit", "-q", "--allow-empty", "-m", "first")
    return path


def test_directory_outside_git_is_its_own_project(tmp_path: Path) -> None:
    assert project_root(tmp_path / "not/there") == tmp_path / "not/there"


def test_directory_in_checkout_belongs_to_its_root(tmp_path: Path) -> None:
    top = _repository(tmp_path / "repo")
    (top / "a/b").mkdir(parents=True)
    assert project_root(top / "a/b") == project_root(top) == checkout_root(top / "a/b") == top


def test_worktree_shares_project_root_but_has_own_checkout_root(tmp_path: Path) -> None:
    top = _repository(tmp_path / "repo")
    _git(top, "worktree", "add", "-q", "../tree")
    (tmp_path / "tree/a").mkdir()
    assert project_root(tmp_path / "tree/a") == top
    assert checkout_root(tmp_path / "tree/a") == tmp_path / "tree"


@pytest.mark.slow
def test_submodule_is_separate_project(tmp_path: Path) -> None:
    top, part = _repository(tmp_path / "repo"), _repository(tmp_path / "part")
    _git(top, "submodule", "add", "-q", str(part), "part")
    assert project_root(top / "part") == top / "part"


def test_worktree_of_bare_repository_is_its_own_root(tmp_path: Path) -> None:
    _git(tmp_path, "clone", "-q", "--bare", str(_repository(tmp_path / "repo")), "bare.git")
    _git(tmp_path / "bare.git", "worktree", "add", "-q", "../tree")
    assert project_root(tmp_path / "tree") == tmp_path / "tree"


def test_forged_pointer_does_not_adopt_other_project(tmp_path: Path) -> None:
    """A `.git` file alone must not give access to settings and approvals of another project."""
    top = _repository(tmp_path / "repo")
    _git(top, "worktree", "add", "-q", "../tree")
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / ".git").write_bytes((tmp_path / "tree/.git").read_bytes())
    assert project_root(forged) == forged


@pytest.mark.parametrize(
    "content", [b"", b"gitdir:", b"gitdir: /nowhere", b"gitdir: a\0b", b"\xff\xfe", b"x" * 100_000]
)
def test_damaged_pointer_still_marks_checkout(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    (tmp_path / "a").mkdir()
    assert project_root(tmp_path / "a") == tmp_path


def test_pipe_or_loop_as_pointer_is_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert project_root(tmp_path) == tmp_path
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.git").symlink_to(".git")
    assert project_root(tmp_path / "a") == tmp_path


def test_project_directory_name_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    assert project_directory(tmp_path) == tmp_path / ".coterie"
    monkeypatch.setenv("COTERIE_PROJECT_DIR", ".claude")
    assert project_directory(tmp_path) == tmp_path / ".claude"
