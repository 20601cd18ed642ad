"""Creation and removal of an agent's worktree; one with unsaved work is never removed."""

import contextlib
import shutil
from pathlib import Path

import attrs
import trio

from coterie.agents.worktrees.git_command import GitFailed, run_git
from coterie.agents.worktrees.worktree import WORKTREE_RECORD, Worktree, WorktreeFailed, read_worktree_record
from coterie.files import replace_file
from coterie.paths import WORKTREES, project_directory
from coterie.session_directory import SessionDirectory

_STATUS = ("status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=none")
_HEADS = ("rev-list", "--walk-reflogs", "HEAD")


async def find_unsaved_work(worktree: Worktree) -> str | None:
    """What would be lost with *worktree*, in a few words; None if nothing. Raises `GitFailed` if that cannot be told.

    Work is every file that is not as in the base, ignored ones too, and every commit that its head has been at. What
    git was told not to look at, or keeps for this worktree alone, counts as work as well.
    """
    if worktree.stage == "making" or not worktree.path.exists():
        return None
    await _check_worktree(worktree)
    files = (await worktree.git_inside(*_STATUS)).splitlines()
    # Also of a commit that was left again: nothing but the log of this head may still lead to it.
    heads = (await worktree.git_inside(*_HEADS)).splitlines()
    heads.append(await worktree.git_inside("rev-parse", "HEAD"))
    found = [*_counted(len({*heads} - {worktree.base}), "commit"), *_counted(len(files), "changed file")]
    return " and ".join(found) or await _hidden_work(worktree)


def describe_work(worktree: Worktree, work: str | None) -> str:
    """What whoever started the agent is told of *work* in its *worktree*."""
    if work is None:
        return "Nothing was changed in its worktree."
    return f"Its work is in {worktree.path}, on the branch {worktree.branch}: {work}."


async def _check_worktree(worktree: Worktree) -> None:
    """Raise `GitFailed` unless the path is a worktree: otherwise git would answer for the checkout around it."""
    top = await worktree.git_inside("rev-parse", "--show-toplevel")
    if Path(top) != worktree.path:
        raise GitFailed(f"{worktree.path} is not a worktree any more")


async def _hidden_work(worktree: Worktree) -> str | None:
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


async def release_worktree(worktree: Worktree) -> str:
    """Remove *worktree* if there is no work in it, and say in a sentence what became of it. Nobody works in it now.

    Cancelled, it is there as it was, or removed by the next start of the agent or the doctor. Raises `OSError`.
    """
    try:
        work = await find_unsaved_work(worktree)
        if work is None:
            await remove_worktree(worktree)
    except GitFailed as exc:
        work = f"what is in it could not be told, {exc}"
    return describe_work(worktree, work)


async def remove_worktree(worktree: Worktree) -> None:
    """Remove *worktree* and its branch after `find_unsaved_work` found nothing; safe to repeat.

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


CREATE_TIMEOUT = 120.0
"""Seconds for a worktree to be made: a large repository on a slow disk, and filters that fetch."""
UNDO_TIMEOUT = 5.0
"""Seconds to remove what was half made."""


async def open_worktree(session: SessionDirectory, name: str, origin: Path) -> Worktree:
    """The worktree of the agent *name*: the one it has, or a new one of the last commit where *origin* is.

    The record is written first, so a crash at any time leaves nothing that is not known of: it is removed by the next
    call for this agent, or by the doctor. Cancelled, or when git fails half way, nothing is left. Raises
    `WorktreeFailed`.
    """
    try:
        with trio.fail_after(CREATE_TIMEOUT):
            known = await trio.to_thread.run_sync(read_worktree_record, session.agent_directory(name) / WORKTREE_RECORD)
            if known is not None and await _is_there(known):
                return known
            if known is not None:
                await remove_worktree(known)
            return await _make(await _plan(session, name, origin))
    except trio.TooSlowError as exc:
        raise WorktreeFailed(f"git has not made a worktree within {CREATE_TIMEOUT:.0f} seconds") from exc
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


async def _plan(session: SessionDirectory, name: str, origin: Path) -> Worktree:
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
        record=session.agent_directory(name) / WORKTREE_RECORD,
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
        with (
            trio.move_on_after(UNDO_TIMEOUT, shield=True),
            contextlib.suppress(GitFailed, OSError),
        ):  # then it is done later
            await remove_worktree(worktree)
        raise
    return ready


WORK_NOT_CHECKED = "it was not looked through"
