"""Git worktrees for agents: made when one starts, removed when it ends without work in it, and never with work."""

from coterie.orchestrator.worktrees.git import GitFailed
from coterie.orchestrator.worktrees.opening import open_worktree
from coterie.orchestrator.worktrees.removing import leave_worktree, remove_worktree
from coterie.orchestrator.worktrees.work import find_work, in_words
from coterie.orchestrator.worktrees.worktree import RECORD, Worktree, WorktreeFailed, read_record, worktree_of

__all__ = [
    "RECORD",
    "GitFailed",
    "Worktree",
    "WorktreeFailed",
    "find_work",
    "in_words",
    "leave_worktree",
    "open_worktree",
    "read_record",
    "remove_worktree",
    "worktree_of",
]
