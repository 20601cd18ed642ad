"""Real git repositories for tests."""

import os
import subprocess
from pathlib import Path

_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    **{f"GIT_{who}_{what}": "tester@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(directory: Path, *arguments: str) -> str:
    return _run(directory, "git", *arguments)


def shell(directory: Path, script: str) -> None:
    _run(directory, "/bin/sh", "-ec", script)


def _run(directory: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=directory, env=_ENVIRONMENT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(directory: Path, **files: str) -> str:
    """The commit of *files*, by name without suffix, and of all else that was not committed."""
    for name, content in files.items():
        (directory / f"{name}.txt").write_text(content)
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "--quiet", "--allow-empty", "--message", "a change")
    return git(directory, "rev-parse", "HEAD")


def make_repository(directory: Path) -> Path:
    """A repository with one commit and a file that is ignored; *directory* is made."""
    directory.mkdir(parents=True)
    git(directory, "init", "--quiet", "--initial-branch=trunk")
    (directory / ".gitignore").write_text("*.log\n")
    commit(directory, readme="hello\n")
    return directory


def worktrees(directory: Path) -> list[str]:
    lines = git(directory, "worktree", "list", "--porcelain").splitlines()
    return [Path(line.removeprefix("worktree ")).name for line in lines if line.startswith("worktree ")][1:]


def branches(directory: Path) -> list[str]:
    return git(directory, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
