"""Spawn requests, their result, and the protocol of a spawner."""

from decimal import Decimal
from typing import Literal, Protocol

import attrs

from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.errors import AgentError
from coterie.mailbox.envelope import Envelope, MessageId

GENERAL = "general-purpose"
"""The kind of an agent of which nothing else is said."""
FORK = "fork"
"""Named as a kind: one that begins with its parent's conversation."""
Isolation = Literal["worktree"]
"""Where an agent works, if not where who starts it does: in a git worktree of its own."""
MemoryScope = Literal["user", "project", "local"]
"""Where agents of a kind keep what they learn."""
Process = Literal["own", "shared"]
"""A process of its own, or a task in that of whoever starts it."""


@attrs.define(eq=False)
class SpawnRefused(AgentError):
    """No agent was started, or stopped."""

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
    plan: PlanPolicy | None = None
    """Who must approve its plan before it may do more than read; None lets it begin."""
    budget_usd: Decimal | None = None
    """Dollars that it may spend, and all that it starts; None for no limit of its own."""
    memory: MemoryScope | None = None
    """None is what its definition says."""
    process: Process | None = None
    """None is what its definition says."""


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

    async def stop(self, name: str) -> None:
        """Stop *name*, which that agent, or one of those it started, has started; returns when it is over.

        No message takes it up again. Raises `SpawnRefused`.
        """
        ...

    async def request_shutdown(self, request: Envelope) -> None:
        """Hand *request*, of that agent, to the one start of an agent that it is for; returns when that start has it.

        Raises `SpawnRefused`, also if another start of the name is at work by now.
        """
        ...

    async def wait_until_idle(self) -> None:
        """Return when nobody whom that agent, or one of those it started, has started has anything left to do.

        What is in a mailbox within a process is not known to whoever says so.
        """
        ...


FORK_TYPE = "fork"
"""Agent type of a fork on the roster."""
