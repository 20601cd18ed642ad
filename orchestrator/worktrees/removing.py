"""How a worktree goes: only without work in it, and so that a crash half way leaves nothing in doubt."""

import shutil
from pathlib import Path

import trio

from coterie.orchestrator.worktrees.git import GitFailed
from coterie.orchestrator.worktrees.work import find_work, in_words
from coterie.orchestrator.worktrees.worktree import Worktree


async def leave_worktree(worktree: Worktree) -> str:
    """Remove *worktree* if there is no work in it, and say in a sentence what became of it. Nobody works in it now.

    Cancelled, it is there as it was, or removed by the next start of the agent or the doctor. Raises `OSError`.
    """
    try:
        work = await find_work(worktree)
        if work is None:
            await remove_worktree(worktree)
    except GitFailed as exc:
        work = f"what is in it could not be told, {exc}"
    return in_words(worktree, work)


async def remove_worktree(worktree: Worktree) -> None:
    """Remove *worktree* with its branch; `find_work` has found nothing. Done twice, or half before, it does no harm.

    The directory is renamed first: what has that name needs no second look. A branch that is not where it began stays,
    and `GitFailed` is raised. Raises `OSError` too.
    """
    await trio.to_thread.run_sync(_set_aside_sync, worktree)
    listed = await worktree.git("worktree", "list", "--porcelain")
    if f"worktree {worktree.path}" in listed.splitlines():
        await worktree.git("worktree", "remove", "--force", "--force", str(worktree.path))
    if await worktree.tip() is not None:
        await worktree.git("update-ref", "-d", worktree.ref, worktree.base)
    await trio.to_thread.run_sync(_delete_sync, worktree)


def _set_aside_sync(worktree: Worktree) -> None:
    if worktree.path.exists():
        _delete_tree_sync(worktree.aside)
        worktree.path.rename(worktree.aside)


def _delete_sync(worktree: Worktree) -> None:
    _delete_tree_sync(worktree.aside)
    worktree.record.unlink(missing_ok=True)


def _delete_tree_sync(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
