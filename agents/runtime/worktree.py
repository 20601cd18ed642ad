"""Git worktree of one agent, and the unsaved work in it."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.git_command import GitFailed, run_git

ASIDE = ".removed"
"""Suffix of the name of a worktree that is being removed; there was no work in it when it was renamed."""
WORK_NOT_CHECKED = "it was not looked through"

Stage = Literal["making", "ready"]


@attrs.frozen(kw_only=True)
class Worktree:
    """Worktree of one agent: a fact of its record, and part of its spec."""

    path: Path
    directory: Path
    """Directory in which the agent works: the counterpart of *origin*."""
    origin: Path
    """Directory in which the agent would work without a worktree."""
    repository: Path
    """Git directory that all worktrees share."""
    branch: str
    base: str
    """Commit that the branch began with."""
    record: Path
    stage: Stage = "ready"
    """Is "making" until git has made the worktree; no agent has worked in it before."""

    @property
    def aside(self) -> Path:
        """Path of the worktree while it is being removed."""
        return self.path.with_name(self.path.name + ASIDE)

    @property
    def ref(self) -> str:
        """Full name of the branch."""
        return f"refs/heads/{self.branch}"

    async def git(self, *arguments: str) -> str:
        """Run git on the repository and return its output, wherever the worktree is. Raises `GitFailed`."""
        return await run_git(self.repository, f"--git-dir={self.repository}", *arguments)

    async def git_inside(self, *arguments: str) -> str:
        """Run git in the worktree, with the configuration of its repository alone. Raises `GitFailed`."""
        return await run_git(self.path, *arguments, repository=self.repository)

    async def tip(self) -> str | None:
        """Return the last commit of the branch; None if there is no such branch. Raises `GitFailed`."""
        return await self.git("for-each-ref", "--format=%(objectname)", self.ref) or None


_STATUS = ("status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=none")
_HEADS = ("rev-list", "--walk-reflogs", "HEAD")


async def find_unsaved_work(worktree: Worktree) -> str | None:
    """Return in a few words the work that would be lost with *worktree*; None for none. Raises `GitFailed`.

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
    """Sentence about the *work* in *worktree* for the parent of the agent."""
    if work is None:
        return "Nothing was changed in its worktree."
    return f"Its work is in {worktree.path}, on the branch {worktree.branch}: {work}."


async def _check_worktree(worktree: Worktree) -> None:
    """Raise `GitFailed` unless the path is a worktree: otherwise git would answer for the checkout around it."""
    top = await worktree.git_inside("rev-parse", "--show-toplevel")
    if Path(top) != worktree.path:
        raise GitFailed(f"{worktree.path} is not a worktree any more")


async def _hidden_work(worktree: Worktree) -> str | None:
    """Reason why there may be work that git does not show; None for none."""
    own = Path(await worktree.git_inside("rev-parse", "--absolute-git-dir"))
    if (own / "locked").exists():
        return "it is locked"
    if (own / "modules").exists():
        return "it has submodules of its own"
    tags = {line[:1] for line in (await worktree.git_inside("ls-files", "-v")).splitlines()}
    return None if tags <= {"H"} else "git does not look at all of its files"


def _counted(count: int, noun: str) -> list[str]:
    return [f"{count} {noun}{'' if count == 1 else 's'}"] if count else []
