"""Git worktree of one agent, and the unsaved work in it."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.git_command import GitFailed, run_git

ASIDE = ".removed"
"""Suffix of a worktree that is being removed; it had no unsaved work when it was renamed."""
WORK_NOT_CHECKED = "it could not be checked in time"

Stage = Literal["making", "ready"]


@attrs.frozen(kw_only=True)
class Worktree:
    """Worktree of one agent, as it is recorded and passed in the spec of the agent."""

    path: Path
    directory: Path
    """Working directory of the agent: the path inside the worktree that corresponds to *origin*."""
    origin: Path
    """Working directory that the agent would have without a worktree."""
    repository: Path
    """Git directory that all worktrees share."""
    branch: str
    base: str
    """Commit that the branch started from."""
    record: Path
    stage: Stage = "ready"
    """"making" until git has created the worktree; no agent has worked in it before."""

    @property
    def aside(self) -> Path:
        """Path of the worktree while it is being removed."""
        return self.path.with_name(self.path.name + ASIDE)

    @property
    def ref(self) -> str:
        """Full name of the branch."""
        return f"refs/heads/{self.branch}"

    async def git(self, *arguments: str) -> str:
        """Run git on the repository, also if the worktree is gone, and return its output. Raises `GitFailed`."""
        return await run_git(self.repository, f"--git-dir={self.repository}", *arguments)

    async def git_inside(self, *arguments: str) -> str:
        """Run git in the worktree, with the configuration of its repository only. Raises `GitFailed`."""
        return await run_git(self.path, *arguments, repository=self.repository)

    async def tip(self) -> str | None:
        """Return the last commit of the branch; None if there is no such branch. Raises `GitFailed`."""
        return await self.git("for-each-ref", "--format=%(objectname)", self.ref) or None


_STATUS = ("status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=none")


async def find_unsaved_work(worktree: Worktree) -> str | None:
    """Describe the work that would be lost with *worktree*; None if there is none. Raises `GitFailed`.

    Work is every file that differs from the base, including ignored files, and every commit that its HEAD has pointed
    to. Files that git was configured to ignore, and data that git keeps for this worktree only, count as work too.
    """
    if worktree.stage == "making" or not worktree.path.exists():
        return None
    # Outside of a worktree, git would use the checkout around the path.
    if Path(await worktree.git_inside("rev-parse", "--show-toplevel")) != worktree.path:
        raise GitFailed(f"{worktree.path} is no longer a worktree")
    files = (await worktree.git_inside(*_STATUS)).splitlines()
    # Includes commits that HEAD has left, because only the reflog of this HEAD may still lead to them.
    heads = (await worktree.git_inside("rev-list", "--walk-reflogs", "HEAD")).splitlines()
    heads.append(await worktree.git_inside("rev-parse", "HEAD"))
    found = [*_describe_count(len({*heads} - {worktree.base}), "commit"), *_describe_count(len(files), "changed file")]
    return " and ".join(found) or await _hidden_work(worktree)


def describe_work(worktree: Worktree, work: str | None) -> str:
    """Return a sentence about the *work* in *worktree* for the parent of the agent."""
    if work is None:
        return "There are no changes in its worktree."
    return f"Its work is in {worktree.path}, on the branch {worktree.branch}: {work}."


async def _hidden_work(worktree: Worktree) -> str | None:
    """Return a reason why there may be work that git does not list; None if there is no reason."""
    own = Path(await worktree.git_inside("rev-parse", "--absolute-git-dir"))
    if (own / "locked").exists():
        return "it is locked"
    if (own / "modules").exists():
        return "it has submodules of its own"
    tags = {line[:1] for line in (await worktree.git_inside("ls-files", "-v")).splitlines()}
    return None if tags <= {"H"} else "git is configured to skip some of its files"


def _describe_count(count: int, noun: str) -> list[str]:
    return [f"{count} {noun}{'' if count == 1 else 's'}"] if count else []
