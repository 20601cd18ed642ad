"""Paths of Coterie: its home directory, and the project that a directory belongs to."""

import os
from pathlib import Path

HOME_VARIABLE = "COTERIE_HOME"


def home_directory() -> Path:
    """Return the home directory of Coterie, `COTERIE_HOME` or else `~/.coterie`; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.coterie").expanduser()


PROJECT_DIRECTORY_VARIABLE = "COTERIE_PROJECT_DIR"
PROJECT_DIRECTORY = ".coterie"
WORKTREES = "worktrees"
"""Name of the directory, inside `project_directory`, that contains the git worktrees of agents."""
POINTER_LIMIT = 8_192
"""Maximum bytes read from a file that contains the path of a git directory; no path is longer."""


def project_root(directory: Path) -> Path:
    """Return the resolved root of the project that contains *directory*; outside of a git checkout, *directory* itself.

    All worktrees of a repository share the root of its main checkout. A submodule is a separate project, and so is
    a worktree whose repository has no main checkout. An unreadable `.git` counts as missing.
    """
    top = checkout_root(directory)
    return _main_checkout(top) or top


def checkout_root(directory: Path) -> Path:
    """Return *directory* or its closest ancestor that contains `.git`, resolved; *directory* if there is none.

    In a worktree this is the root of the worktree, whereas `project_root` returns the root of the main checkout.
    """
    start = directory.resolve()
    return next((place for place in (start, *start.parents) if _holds_git(place)), start)


def project_directory(directory: Path) -> Path:
    """Return the directory of Coterie's files in the project of *directory*, usually `.coterie`; it need not exist."""
    return project_root(directory) / (os.environ.get(PROJECT_DIRECTORY_VARIABLE) or PROJECT_DIRECTORY)


def git_directories(top: Path) -> tuple[Path, Path] | None:
    """Return the git directory of the checkout *top*, and the git directory of its repository.

    Both are `.git` of *top*, except in a worktree. Returns None if there is no git directory, or if `.git` points to a
    repository that does not list *top* as a worktree.
    """
    entry = top / ".git"
    if entry.is_dir() and not entry.is_symlink():
        return entry, entry
    checkout, own = _main_checkout(top), _read_path(entry, "gitdir:")
    return None if checkout is None or own is None else (own, checkout / ".git")


def _holds_git(place: Path) -> bool:
    try:
        return (place / ".git").exists()
    except OSError:
        return False


def _main_checkout(top: Path) -> Path | None:
    """Return the main checkout of the repository of the git worktree *top*; None if *top* is not a worktree."""
    pointer = _read_path(top / ".git", "gitdir:")
    common = pointer and _read_path(pointer / "commondir")
    if pointer is None or common is None or common.name != ".git":
        return None
    # A `.git` file can point to any repository, so the repository must list this worktree too.
    if pointer.parent != common / "worktrees" or _read_path(pointer / "gitdir") != top / ".git":
        return None
    return common.parent


def _read_path(file: Path, prefix: str = "") -> Path | None:
    """Read the path after *prefix* in *file*, resolved against the directory of *file*; None if there is no path."""
    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            line = os.fsdecode(stream.read(POINTER_LIMIT)).strip()
        target = line.removeprefix(prefix).strip()
        return (file.parent / target).resolve() if target and line.startswith(prefix) else None
    except (OSError, ValueError, RuntimeError):  # a NUL byte in the path, or a symlink loop
        return None
