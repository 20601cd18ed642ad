"""Directories of Coterie: the user's home, and the project that a directory belongs to."""

import os
from pathlib import Path

HOME_VARIABLE = "COTERIE_HOME"


def home_directory() -> Path:
    """Coterie's directory of this user; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.coterie").expanduser()


PROJECT_DIRECTORY_VARIABLE = "COTERIE_PROJECT_DIR"
PROJECT_DIRECTORY = ".coterie"
WORKTREES = "worktrees"
"""In a project's directory: the worktrees that agents work in."""
POINTER_LIMIT = 8_192
"""More bytes than a path can have: what is longer is not one of git's pointers."""


def project_root(directory: Path) -> Path:
    """The top of the project *directory* is in, resolved; *directory* itself when it is in no checkout.

    All worktrees of a repository share the root of its main checkout. A submodule is a project of its own, and so is
    a worktree whose repository has no main checkout. What cannot be read counts as absent.
    """
    top = checkout_root(directory)
    return _main_checkout(top) or top


def checkout_root(directory: Path) -> Path:
    """The nearest directory, from *directory* upwards, that holds a `.git`; else *directory* itself. Resolved.

    It differs from `project_root` in a worktree: the files that git tracks are those of this tree.
    """
    start = directory.resolve()
    return next((place for place in (start, *start.parents) if _holds_git(place)), start)


def project_directory(directory: Path) -> Path:
    """Where the project of *directory* keeps Coterie's files; it need not exist."""
    return project_root(directory) / (os.environ.get(PROJECT_DIRECTORY_VARIABLE) or PROJECT_DIRECTORY)


def git_directories(top: Path) -> tuple[Path, Path] | None:
    """Git's directory of the checkout *top*, and that of its repository; the same but for a worktree.

    None where there is none, or what stands in its place leads to one that does not name *top* back.
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
    """The checkout that *top* is a worktree of; None if it is not one."""
    pointer = _read_path(top / ".git", "gitdir:")
    common = pointer and _read_path(pointer / "commondir")
    if pointer is None or common is None or common.name != ".git":
        return None
    # Anyone can write a `.git` file that names a stranger's repository; only the repository can name it back.
    if pointer.parent != common / "worktrees" or _read_path(pointer / "gitdir") != top / ".git":
        return None
    return common.parent


def _read_path(file: Path, prefix: str = "") -> Path | None:
    """The path that *file* holds behind *prefix*, relative to where the file is; None if it holds none."""
    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            line = os.fsdecode(stream.read(POINTER_LIMIT)).strip()
        target = line.removeprefix(prefix).strip()
        return (file.parent / target).resolve() if target and line.startswith(prefix) else None
    except (OSError, ValueError, RuntimeError):  # a NUL in the path, or a loop of links
        return None
