"""Starting other agents: what is asked for, and what whoever asks gets to know at once."""

from typing import Literal, Protocol

import attrs

from coterie.agents.errors import AgentError
from coterie.mailbox.ids import MessageId

Isolation = Literal["worktree"]
"""Where an agent works, if not where who starts it does: in a git worktree of its own."""


@attrs.define(eq=False)
class SpawnRefused(AgentError):
    """No agent was started."""

    reason: str
    """Why not, and what would be right, in words for the model."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class SpawnRequest:
    """A subagent that is wanted for one task."""

    task: str
    """All that it is told."""
    definition: str
    """What kind of agent."""
    name: str | None = None
    """What others call it; None lets the session choose."""
    model: str | None = None
    """An id or alias; None is what its definition says, or else its parent's."""
    fork: str | None = None
    """The file of the fork point it begins with; None for a fresh one."""
    stays: bool = False
    """Whether it is there for further messages when the task is done: a teammate."""
    isolation: Isolation | None = None
    """None is what its definition says, or else where its parent works."""


@attrs.frozen(kw_only=True)
class Spawned:
    """A subagent that has begun."""

    name: str
    incarnation: int
    report: MessageId
    """The id of the message that will say what came of the task; it comes once, whatever happens to the subagent."""


class Spawner(Protocol):
    """Whoever can start agents for one agent."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Start a subagent; it runs on when this returns. Raises `SpawnRefused`."""
        ...
