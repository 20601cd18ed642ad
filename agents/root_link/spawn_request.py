"""Spawn requests, their result, and the protocol of a spawner."""

from decimal import Decimal
from typing import Any, Literal, Protocol

import attrs

from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.errors import AgentError
from coterie.mailbox.envelope import Envelope, MessageId

GENERAL = "general-purpose"
"""Agent type if a request names none."""
FORK = "fork"
"""Agent type of a fork, which begins with the conversation of its parent; in a request and on the roster."""
Isolation = Literal["worktree"]
"""Workspace of an agent that does not work in the directory of its parent: a separate git worktree."""
MemoryScope = Literal["user", "project", "local"]
"""Scope of the memory of an agent type."""
Process = Literal["own", "shared"]
""""own" for a separate process, "shared" for a task in the process of the parent."""


@attrs.define(eq=False)
class SpawnRefused(AgentError):
    """Error: an agent could not be spawned or stopped."""

    reason: str
    """Reason and correction, as a text for the model."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class SpawnOptions:
    """Options that a spawn request and a member of a team have under the same name, declared for both."""

    model: str | None = None
    """Model id or alias; None for the model of the definition, or else of the parent."""
    plan: PlanPolicy | None = None
    """Approval that the agent's plan needs before the agent may do more than read; None if it needs none."""
    budget_usd: Decimal | None = None
    """Dollars that the agent and its descendants may spend; None for no separate limit."""
    memory: MemoryScope | None = None
    """Scope of the agent's memory; None for the scope of the definition."""
    process: Process | None = None
    """Process of the agent; None for the choice of the definition."""

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, for the constructor of another class with the same options."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SpawnOptions)}


@attrs.frozen(kw_only=True)
class SpawnRequest(SpawnOptions):
    """Request for an agent: a subagent for one task, or a teammate."""

    task: str
    """First message to the agent; empty for a teammate that waits for messages."""
    definition: str
    """Agent type."""
    name: str | None = None
    """Name of the agent; None if the session chooses a name."""
    fork: str | None = None
    """File of the fork point that the agent begins with; None for a new conversation."""
    stays: bool = False
    """True for a teammate, which waits for further messages when its task is done."""
    isolation: Isolation | None = None
    """Workspace of the agent; None for that of the definition, or else that of the parent."""


@attrs.frozen(kw_only=True)
class Spawned:
    """Result of a spawn: a subagent that has started."""

    name: str
    incarnation: int
    report: MessageId
    """Id of the report about the task. The report arrives exactly once, even if the subagent crashes."""


class Spawner(Protocol):
    """Spawns and stops agents on behalf of one agent."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Start a subagent and return while it runs. Raises `SpawnRefused`."""

    async def stop(self, name: str) -> None:
        """Stop *name*, a descendant of that agent; returns when it has ended.

        Later messages do not restart *name*. Raises `SpawnRefused`.
        """

    async def request_shutdown(self, request: Envelope) -> None:
        """Pass *request* to the incarnation of an agent that it names; returns when that incarnation has received it.

        Raises `SpawnRefused`, also if another incarnation of the agent is running now.
        """

    async def wait_until_idle(self) -> None:
        """Return when all descendants of that agent are idle.

        The spawner does not know about messages in a mailbox inside a process.
        """
