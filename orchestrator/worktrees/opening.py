"""How an agent gets its worktree: the one it has, or a new one of the last commit."""

import contextlib
from pathlib import Path

import attrs
import trio

from coterie.agents.project import WORKTREES, project_directory
from coterie.files import replace_file
from coterie.orchestrator.session import Session
from coterie.orchestrator.worktrees.git import GitFailed, run_git
from coterie.orchestrator.worktrees.removing import remove_worktree
from coterie.orchestrator.worktrees.worktree import RECORD, Worktree, WorktreeFailed, read_record

PATIENCE = 120.0
"""Seconds for a worktree to be made: a large repository on a slow disk, and filters that fetch."""
TIDYING = 5.0
"""Seconds to remove what was half made."""


async def open_worktree(session: Session, name: str, origin: Path) -> Worktree:
    """The worktree of the agent *name*: the one it has, or a new one of the last commit where *origin* is.

    The record is written first, so a crash at any time leaves nothing that is not known of: it is removed by the next
    call for this agent, or by the doctor. Cancelled, or when git fails half way, nothing is left. Raises
    `WorktreeFailed`.
    """
    try:
        with trio.fail_after(PATIENCE):
            known = await trio.to_thread.run_sync(read_record, session.agent_directory(name) / RECORD)
            if known is not None and await _is_there(known):
                return known
            if known is not None:
                await remove_worktree(known)
            return await _make(await _plan(session, name, origin))
    except trio.TooSlowError as exc:
        raise WorktreeFailed(f"git has not made a worktree within {PATIENCE:.0f} seconds") from exc
    except (GitFailed, OSError) as exc:
        raise WorktreeFailed(f"there can be no worktree of {origin}: {exc}") from exc


async def _is_there(worktree: Worktree) -> bool:
    """Whether *worktree* can be worked in, as it is or brought back: its branch may be all that the user kept."""
    if worktree.stage == "making":
        return False
    if not worktree.path.exists():
        if await worktree.tip() in (None, worktree.base):
            return False
        await worktree.git("worktree", "add", "--force", str(worktree.path), worktree.branch)
    worktree.directory.mkdir(parents=True, exist_ok=True)
    return True


async def _plan(session: Session, name: str, origin: Path) -> Worktree:
    """A worktree that can be made, on record."""
    where = await run_git(origin, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir")
    top, repository = map(Path, where.splitlines())
    inside = await run_git(origin, "rev-parse", "--show-prefix")
    path = project_directory(top).resolve() / WORKTREES / f"{session.id}-{name}"
    worktree = Worktree(
        path=path,
        directory=path / inside,
        origin=origin,
        repository=repository,
        branch=f"coterie/{session.id}/{name}",
        base=await _commit(origin, inside),
        record=session.agent_directory(name) / RECORD,
        stage="making",
    )
    if await worktree.tip() is not None:
        raise GitFailed(f"there is a branch {worktree.branch} already")
    await trio.to_thread.run_sync(_prepare_sync, worktree)
    return worktree


async def _commit(origin: Path, inside: str) -> str:
    """The last commit, which has the directory *inside* of it."""
    try:
        base = await run_git(origin, "rev-parse", "--verify", "HEAD^{commit}")
    except GitFailed as exc:
        raise GitFailed("there is no commit yet; make one first") from exc
    try:
        await run_git(origin, "cat-file", "-e", f"{base}:{inside}")
    except GitFailed as exc:
        raise GitFailed(f"{inside} is not in the last commit; commit it first") from exc
    return base


def _prepare_sync(worktree: Worktree) -> None:
    """Make the place for worktrees, which no checkout takes for its own files, and write the record."""
    place = worktree.path.parent
    place.mkdir(parents=True, exist_ok=True)
    if not (place / ".gitignore").exists():
        replace_file(place / ".gitignore", b"*\n", durable=False)
    if worktree.path.exists():
        raise FileExistsError(f"{worktree.path} is in the way")
    worktree.save()


async def _make(worktree: Worktree) -> Worktree:
    """Let git make it. What fails half way, or is cancelled, is removed at once, if it can be."""
    # By force: a start that was killed may have left this path on git's list, locked.
    options = ("--force", "--force", "--no-track", "-b", worktree.branch)
    ready = attrs.evolve(worktree, stage="ready")
    try:
        await worktree.git("worktree", "add", *options, str(worktree.path), worktree.base)
        await trio.to_thread.run_sync(ready.save)
    except BaseException:
        with trio.move_on_after(TIDYING, shield=True), contextlib.suppress(GitFailed, OSError):  # then it is done later
            await remove_worktree(worktree)
        raise
    return ready
