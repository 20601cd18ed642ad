"""Spawn requests, their result, and the protocol of a spawner."""

from decimal import Decimal
from typing import Any, Literal, Protocol

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
class SpawnOptions:
    """Options that a spawn request and a member of a team have under the same name, declared for both."""

    model: str | None = None
    """Id or alias; None for the model of its definition, or else of its parent."""
    plan: PlanPolicy | None = None
    """Approval that its plan needs before the agent may do more than read; None for none."""
    budget_usd: Decimal | None = None
    """Dollars that the agent and all agents below it may spend; None for no limit of its own."""
    memory: MemoryScope | None = None
    """Scope of its memory; None for that of its definition."""
    process: Process | None = None
    """Process that it runs in; None for that of its definition."""

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, for the constructor of another class that has them."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SpawnOptions)}


@attrs.frozen(kw_only=True)
class SpawnRequest(SpawnOptions):
    """Request for an agent: a subagent for one task, or a teammate."""

    task: str
    """First message to the agent; empty for a teammate that waits for messages."""
    definition: str
    """Agent type."""
    name: str | None = None
    """Name of the agent; None lets the session choose."""
    fork: str | None = None
    """File of the fork point that the agent begins with; None for a new conversation."""
    stays: bool = False
    """True for a teammate, which waits for further messages when the task is done."""
    isolation: Isolation | None = None
    """None for that of its definition, or else the workspace of its parent."""


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
