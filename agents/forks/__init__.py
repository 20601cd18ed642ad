"""Forks begin with another agent's whole conversation, byte for byte, so that the prompt cache serves them.

- `take_point` says where: the end of the parent's last reply. The point travels as bytes (`write_point`, `read_point`)
  and is checked against the parent's hashes when it is read; nothing is rendered or serialised again.
- `begin_fork` adds one user message: the same placeholder for every open call, then the directive. Siblings differ in
  that last block only.
- A fork cannot be forked; its first reply is held against what the parent had cached (`CheckSharing`).
- `ask_helper` is a fork without a life of its own; `refresh_prefix` keeps a waiting parent's prefix in the cache.
"""

from coterie.agents.forks.errors import ForkRefused, PrefixDiffers
from coterie.agents.forks.forking import (
    begin_fork,
    fork_agent,
    fork_pipeline,
    fork_workspace,
    is_fork,
    take_point,
)
from coterie.agents.forks.helpers import HelperStart, ask_helper, deny_all
from coterie.agents.forks.passing import read_point, write_point
from coterie.agents.forks.point import ForkPoint
from coterie.agents.forks.refresh import has_thinking, refresh_prefix
from coterie.agents.forks.sharing import CheckSharing

__all__ = [
    "CheckSharing",
    "ForkPoint",
    "ForkRefused",
    "HelperStart",
    "PrefixDiffers",
    "ask_helper",
    "begin_fork",
    "deny_all",
    "fork_agent",
    "fork_pipeline",
    "fork_workspace",
    "has_thinking",
    "is_fork",
    "read_point",
    "refresh_prefix",
    "take_point",
    "write_point",
]
