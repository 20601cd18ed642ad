"""Paths of Coterie: its home directory, and the project that a directory belongs to."""

import os
from pathlib import Path

HOME_VARIABLE = "COTERIE_HOME"


def home_directory() -> Path:
    """Return the directory of Coterie in the user's home; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.coterie").expanduser()


PROJECT_DIRECTORY_VARIABLE = "COTERIE_PROJECT_DIR"
PROJECT_DIRECTORY = ".coterie"
WORKTREES = "worktrees"
"""Directory in a project's directory for the worktrees of agents."""
POINTER_LIMIT = 8_192
"""Bytes read of a file that points to a git directory; more than any path has."""


def project_root(directory: Path) -> Path:
    """Return the resolved root of the project that contains *directory*; *directory* itself outside of a checkout.

    All worktrees of a repository share the root of its main checkout. A submodule is a separate project, and so is
    a worktree whose repository has no main checkout. An unreadable file counts as missing.
    """
    top = checkout_root(directory)
    return _main_checkout(top) or top


def checkout_root(directory: Path) -> Path:
    """Return the resolved closest ancestor of *directory* (or itself) that contains `.git`; else *directory*.

    In a worktree this is the root of the worktree, whereas `project_root` returns the root of the main checkout.
    """
    start = directory.resolve()
    return next((place for place in (start, *start.parents) if _holds_git(place)), start)


def project_directory(directory: Path) -> Path:
    """Return the directory of Coterie's files in the project of *directory*; it need not exist."""
    return project_root(directory) / (os.environ.get(PROJECT_DIRECTORY_VARIABLE) or PROJECT_DIRECTORY)


def git_directories(top: Path) -> tuple[Path, Path] | None:
    """Return the git directory of the checkout *top* and that of its repository; they differ only in a worktree.

    None if there is no git directory, or if `.git` points to a repository that does not list *top* as a worktree.
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
    """Return the main checkout of the worktree *top*; None if *top* is not a worktree."""
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
