"""Creation, record and removal of an agent's git worktree. A worktree with unsaved work is never removed."""

import contextlib
import shutil
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.runtime.worktree import Worktree, describe_work, find_unsaved_work
from coterie.files import replace_file
from coterie.git_command import GitFailed, run_git
from coterie.paths import WORKTREES, project_directory
from coterie.session_directory import SessionDirectory

WORKTREE_RECORD = "worktree.json"
"""Name of the file in an agent's directory that describes the agent's worktree."""

_LISTING = trio.Lock()
"""Lock for `git worktree` commands: while one command adds a worktree, others fail to read its incomplete directory."""


@attrs.define(eq=False)
class WorktreeFailed(Exception):
    """Error: the worktree of an agent could not be created or restored."""

    reason: str


def save_worktree_record(worktree: Worktree) -> None:
    """Write the record file of *worktree*. Blocks on the disk. Raises `OSError`."""
    replace_file(worktree.record, msgspec.json.encode(worktree, enc_hook=str) + b"\n")


def read_worktree_record(record: Path) -> Worktree | None:
    """Return the worktree in file *record*; None if there is no such file. Raises `OSError` if it cannot be read."""
    try:
        # Paths are the only fields that msgspec cannot decode.
        return msgspec.json.decode(record.read_bytes(), type=Worktree, dec_hook=lambda path, text: path(text))
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise OSError(f"{record}, the record of a worktree, cannot be read: {exc}; run `coterie doctor`") from exc


async def release_worktree(worktree: Worktree) -> str:
    """Remove the *worktree* of an ended agent unless it contains unsaved work; return a sentence about its state.

    After a cancellation the worktree is unchanged, or the next start or `coterie doctor` removes it. Raises `OSError`.
    """
    try:
        work = await find_unsaved_work(worktree)
        if work is None:
            await remove_worktree(worktree)
    except GitFailed as exc:
        work = f"its contents could not be checked, {exc}"
    return describe_work(worktree, work)


async def remove_worktree(worktree: Worktree) -> None:
    """Remove *worktree* and its branch. Call it after `find_unsaved_work` found nothing; it may be repeated.

    The directory is renamed first, so that a later call can delete it without another check. A branch with commits is
    not deleted, and `GitFailed` is raised. Raises `OSError` too.
    """
    await trio.to_thread.run_sync(_set_aside_sync, worktree)
    async with _LISTING:
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
"""Maximum seconds to create a worktree: the repository may be large, the disk slow, and filters may use the network."""
UNDO_TIMEOUT = 5.0
"""Maximum seconds to remove an incomplete worktree."""


async def open_worktree(session: SessionDirectory, name: str, origin: Path) -> Worktree:
    """Return the worktree of agent *name*: the existing one, or a new one at the last commit of *origin*.

    The record is written before the worktree. So after a crash the next call for this agent, or `coterie doctor`,
    removes an incomplete worktree. It is also removed after a cancellation or an error of git. Raises `WorktreeFailed`.
    """
    try:
        with trio.fail_after(CREATE_TIMEOUT):
            known = await trio.to_thread.run_sync(read_worktree_record, session.agent_directory(name) / WORKTREE_RECORD)
            if known is not None and await _is_usable(known):
                return known
            if known is not None:
                await remove_worktree(known)
            return await _create(await _prepare(session, name, origin))
    except trio.TooSlowError as exc:
        raise WorktreeFailed(f"git created no worktree of {origin} in {CREATE_TIMEOUT:.0f} seconds; try again") from exc
    except (GitFailed, OSError) as exc:
        raise WorktreeFailed(f"no worktree of {origin} could be created for agent {name}: {exc}") from exc


async def _is_usable(worktree: Worktree) -> bool:
    """Return True if *worktree* is complete. If only its branch is left with commits, restore it from the branch."""
    if worktree.stage == "making":
        return False
    if not worktree.path.exists():
        if await worktree.tip() in (None, worktree.base):
            return False
        async with _LISTING:
            await worktree.git("worktree", "add", "--force", str(worktree.path), worktree.branch)
    worktree.directory.mkdir(parents=True, exist_ok=True)
    return True


async def _prepare(session: SessionDirectory, name: str, origin: Path) -> Worktree:
    """Check that a worktree of *origin* can be created for agent *name*, write its record, and return it."""
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
        raise GitFailed(f"the branch {worktree.branch} already exists; delete or rename it")
    await trio.to_thread.run_sync(_prepare_sync, worktree)
    return worktree


async def _commit(origin: Path, inside: str) -> str:
    """Return the id of the last commit of *origin*. Raises `GitFailed` if it does not contain directory *inside*."""
    try:
        base = await run_git(origin, "rev-parse", "--verify", "HEAD^{commit}")
    except GitFailed as exc:
        raise GitFailed(f"the repository of {origin} has no commit; create a commit first") from exc
    try:
        await run_git(origin, "cat-file", "-e", f"{base}:{inside}")
    except GitFailed as exc:
        raise GitFailed(f"the directory {inside} is not in the last commit; commit it first") from exc
    return base


def _prepare_sync(worktree: Worktree) -> None:
    """Create the parent directory of worktrees, which git ignores, and write the record of *worktree*."""
    parent = worktree.path.parent
    parent.mkdir(parents=True, exist_ok=True)
    if not (parent / ".gitignore").exists():
        replace_file(parent / ".gitignore", b"*\n", durable=False)
    if worktree.path.exists():
        raise FileExistsError(f"{worktree.path}, the place for the worktree, already exists; remove it")
    save_worktree_record(worktree)


async def _create(worktree: Worktree) -> Worktree:
    """Create *worktree* with git, and return it as ready. After an error or a cancellation, try to remove it."""
    # --force twice, because a killed start may have left this path registered and locked.
    options = ("--force", "--force", "--no-track", "-b", worktree.branch)
    ready = attrs.evolve(worktree, stage="ready")
    try:
        async with _LISTING:
            await worktree.git("worktree", "add", *options, str(worktree.path), worktree.base)
        await trio.to_thread.run_sync(save_worktree_record, ready)
    except BaseException:
        with (
            trio.move_on_after(UNDO_TIMEOUT, shield=True),
            contextlib.suppress(GitFailed, OSError),
        ):  # removed later by the next start or the doctor
            await remove_worktree(worktree)
        raise
    return ready
