"""Git worktree (separate checkout) of one agent, and the search for unsaved work in it."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.git_command import GitFailed, run_git

ASIDE = ".removed"
"""Suffix of the directory of a worktree that is being removed; it had no unsaved work when it was renamed."""
WORK_NOT_CHECKED = "git could not list the changes in time"

Stage = Literal["making", "ready"]


@attrs.frozen(kw_only=True)
class Worktree:
    """Git worktree (separate checkout) of one agent: its paths and branch, as stored in a file and the agent's spec."""

    path: Path
    directory: Path
    """Working directory of the agent: the path inside the worktree that corresponds to *origin*."""
    origin: Path
    """Working directory that the agent would have without a worktree."""
    repository: Path
    """Git directory of the project, which all its worktrees share."""
    branch: str
    base: str
    """Id of the commit from which the branch was started."""
    record: Path
    stage: Stage = "ready"
    """"making" until git has created the worktree, so that it contains no work yet; then "ready"."""

    @property
    def aside(self) -> Path:
        """Path to which the worktree is renamed while it is being removed."""
        return self.path.with_name(self.path.name + ASIDE)

    @property
    def ref(self) -> str:
        """Full name of the worktree's branch, which begins with `refs/heads/`."""
        return f"refs/heads/{self.branch}"

    async def git(self, *arguments: str) -> str:
        """Run git on the repository, even if the worktree does not exist; return the output. Raises `GitFailed`."""
        return await run_git(self.repository, f"--git-dir={self.repository}", *arguments)

    async def git_inside(self, *arguments: str) -> str:
        """Run git in the worktree with the configuration of `repository`; return the output. Raises `GitFailed`."""
        return await run_git(self.path, *arguments, repository=self.repository)

    async def tip(self) -> str | None:
        """Return the id of the last commit of the worktree's branch; None without this branch. Raises `GitFailed`."""
        return await self.git("for-each-ref", "--format=%(objectname)", self.ref) or None


_STATUS = ("status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=none")


async def find_unsaved_work(worktree: Worktree) -> str | None:
    """Return a phrase about the work that deleting *worktree* would lose; None if no work would be lost.

    Work is every changed, new or ignored file, and every commit but the base that HEAD has ever pointed to. A lock,
    submodules in the worktree, and files that git is configured to skip count as work too. Raises `GitFailed`.
    """
    if worktree.stage == "making" or not worktree.path.exists():
        return None
    # Outside of a worktree, git would use the checkout around the path.
    if Path(await worktree.git_inside("rev-parse", "--show-toplevel")) != worktree.path:
        raise GitFailed(f"{worktree.path} is no longer a worktree; save its files before you delete the directory")
    files = (await worktree.git_inside(*_STATUS)).splitlines()
    # Includes commits that HEAD has left, because only the reflog of this HEAD may still lead to them.
    heads = (await worktree.git_inside("rev-list", "--walk-reflogs", "HEAD")).splitlines()
    heads.append(await worktree.git_inside("rev-parse", "HEAD"))
    found = [*_describe_count(len({*heads} - {worktree.base}), "commit"), *_describe_count(len(files), "changed file")]
    return " and ".join(found) or await _hidden_work(worktree)


def describe_work(worktree: Worktree, work: str | None) -> str:
    """Return a sentence for the agent's parent about *work* in *worktree*, a phrase of `find_unsaved_work` or None."""
    if work is None:
        return "There are no changes in its worktree."
    return f"Its work is in {worktree.path}, on the branch {worktree.branch}: {work}."


async def _hidden_work(worktree: Worktree) -> str | None:
    """Return the reason why *worktree* may contain work that git does not list, such as a lock; else None."""
    own = Path(await worktree.git_inside("rev-parse", "--absolute-git-dir"))
    if (own / "locked").exists():
        return "it is locked by `git worktree lock`"
    if (own / "modules").exists():
        return "it has git submodules of its own"
    tags = {line[:1] for line in (await worktree.git_inside("ls-files", "-v")).splitlines()}
    return None if tags <= {"H"} else "git is configured to skip some of its files"


def _describe_count(count: int, noun: str) -> list[str]:
    return [f"{count} {noun}{'' if count == 1 else 's'}"] if count else []
