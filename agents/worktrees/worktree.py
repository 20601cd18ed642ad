"""Worktree of one agent, and the record of it on disk."""

from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.worktrees.git_command import run_git
from coterie.files import replace_file

WORKTREE_RECORD = "worktree.json"
"""In an agent's directory: the worktree it has, as long as it has one."""
ASIDE = ".removed"
"""Ends the name of a worktree that is given up: there was no work in it when it got that name."""

Stage = Literal["making", "ready"]


@attrs.define(eq=False)
class WorktreeFailed(Exception):
    """There is no worktree to work in."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class Worktree:
    """The worktree of one agent, as its record has it."""

    path: Path
    directory: Path
    """Where the agent works: what stands in it for *origin*."""
    origin: Path
    """The directory that the agent would work in without it."""
    repository: Path
    """What git keeps for all worktrees."""
    branch: str
    base: str
    """The commit it began with."""
    record: Path
    stage: Stage = "ready"
    """While it is being made nobody has worked in it."""

    @property
    def aside(self) -> Path:
        """Where it is while it is being removed."""
        return self.path.with_name(self.path.name + ASIDE)

    @property
    def ref(self) -> str:
        """The whole name of the branch."""
        return f"refs/heads/{self.branch}"

    async def git(self, *arguments: str) -> str:
        """What git says of the repository, wherever the worktree is. Raises `GitFailed`."""
        return await run_git(self.repository, f"--git-dir={self.repository}", *arguments)

    async def git_inside(self, *arguments: str) -> str:
        """What git says in the worktree, by the configuration of its repository alone. Raises `GitFailed`."""
        return await run_git(self.path, *arguments, repository=self.repository)

    async def tip(self) -> str | None:
        """The commit its branch is at; None if there is no such branch. Raises `GitFailed`."""
        return await self.git("for-each-ref", "--format=%(objectname)", self.ref) or None

    def save(self) -> None:
        """Write the record. Blocks on the disk; raises `OSError`."""
        replace_file(self.record, msgspec.json.encode(self, enc_hook=str) + b"\n")


def read_worktree_record(record: Path) -> Worktree | None:
    """The worktree that *record* names; None if there is none. Raises `OSError` for what cannot be read."""
    try:
        return parse_worktree(msgspec.json.decode(record.read_bytes()))
    except FileNotFoundError:
        return None
    except ValueError as exc:
        raise OSError(f"{record} cannot be read: {exc}") from exc


def parse_worktree(facts: Any) -> Worktree:
    """The worktree as JSON has it. Raises `ValueError`."""
    return msgspec.convert(facts, Worktree, dec_hook=_from_text)


def _from_text(kind: type, value: Any) -> Any:
    assert kind is Path, f"no fact is a {kind.__name__}"
    return Path(value)
