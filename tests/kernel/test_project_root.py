"""Tests of project roots with checkouts made by git."""

import os
from pathlib import Path

import pytest

from coterie.paths import checkout_root, project_directory, project_root
from tests.orchestrator.supervisor.git_repositories import git, make_repository


def test_directory_outside_git_is_its_own_project(tmp_path: Path) -> None:
    assert project_root(tmp_path / "not/there") == tmp_path / "not/there"


def test_directory_in_checkout_belongs_to_its_root(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "repo")
    (top / "a/b").mkdir(parents=True)
    assert project_root(top / "a/b") == project_root(top) == checkout_root(top / "a/b") == top


def test_worktree_shares_project_root_but_has_own_checkout_root(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "repo")
    git(top, "worktree", "add", "-q", "../tree")
    (tmp_path / "tree/a").mkdir()
    assert project_root(tmp_path / "tree/a") == top
    assert checkout_root(tmp_path / "tree/a") == tmp_path / "tree"


@pytest.mark.slow
def test_submodule_is_separate_project(tmp_path: Path) -> None:
    top, part = make_repository(tmp_path / "repo"), make_repository(tmp_path / "part")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "part")
    assert project_root(top / "part") == top / "part"


def test_worktree_of_bare_repository_is_its_own_root(tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(make_repository(tmp_path / "repo")), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", "../tree")
    assert project_root(tmp_path / "tree") == tmp_path / "tree"


def test_forged_pointer_does_not_adopt_other_project(tmp_path: Path) -> None:
    """A `.git` file alone must not give access to settings and approvals of another project."""
    top = make_repository(tmp_path / "repo")
    git(top, "worktree", "add", "-q", "../tree")
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
