"""What there is in a worktree that must not be lost."""

from pathlib import Path

from coterie.orchestrator.worktrees.git import GitFailed
from coterie.orchestrator.worktrees.worktree import Worktree

_STATUS = ("status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=none")
_HEADS = ("rev-list", "--walk-reflogs", "HEAD")


async def find_work(worktree: Worktree) -> str | None:
    """What would be lost with *worktree*, in a few words; None if nothing. Raises `GitFailed` if that cannot be told.

    Work is every file that is not as in the base, ignored ones too, and every commit that its head has been at. What
    git was told not to look at, or keeps for this worktree alone, counts as work as well.
    """
    if worktree.stage == "making" or not worktree.path.exists():
        return None
    await _check_place(worktree)
    files = (await worktree.git_inside(*_STATUS)).splitlines()
    # Also of a commit that was left again: nothing but the log of this head may still lead to it.
    heads = (await worktree.git_inside(*_HEADS)).splitlines()
    heads.append(await worktree.git_inside("rev-parse", "HEAD"))
    found = [*_counted(len({*heads} - {worktree.base}), "commit"), *_counted(len(files), "changed file")]
    return " and ".join(found) or await _doubt(worktree)


def in_words(worktree: Worktree, work: str | None) -> str:
    """What whoever started the agent is told of *work* in its *worktree*."""
    if work is None:
        return "Nothing was changed in its worktree."
    return f"Its work is in {worktree.path}, on the branch {worktree.branch}: {work}."


async def _check_place(worktree: Worktree) -> None:
    """Raise `GitFailed` unless the path is a worktree: otherwise git would answer for the checkout around it."""
    top = await worktree.git_inside("rev-parse", "--show-toplevel")
    if Path(top) != worktree.path:
        raise GitFailed(f"{worktree.path} is not a worktree any more")


async def _doubt(worktree: Worktree) -> str | None:
    """Why there may be work that git does not show."""
    own = Path(await worktree.git_inside("rev-parse", "--absolute-git-dir"))
    if (own / "locked").exists():
        return "it is locked"
    if (own / "modules").exists():
        return "it has submodules of its own"
    tags = {line[:1] for line in (await worktree.git_inside("ls-files", "-v")).splitlines()}
    return None if tags <= {"H"} else "git does not look at all of its files"


def _counted(count: int, noun: str) -> list[str]:
    return [f"{count} {noun}{'' if count == 1 else 's'}"] if count else []
