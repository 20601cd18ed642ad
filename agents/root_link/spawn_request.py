"""Request to spawn (start) an agent, the result, and the protocol of the service that spawns agents."""

from decimal import Decimal
from typing import Any, Literal, Protocol

import attrs

from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.errors import AgentError
from coterie.mailbox.envelope import Envelope, MessageId

GENERAL = "general-purpose"
"""Agent type of a new agent for which no type is given."""
FORK = "fork"
"""Name used as agent type for a fork, an agent that begins with the conversation of its parent."""
Isolation = Literal["worktree"]
"""Kind of separate workspace: the agent works in a git worktree of its own, not in the directory of its parent."""
MemoryScope = Literal["user", "project", "local"]
"""Sharing of an agent type's memory: by all projects of a user, all users of a project, or neither ("local")."""
Process = Literal["own", "shared"]
""""own" if the agent gets a separate process, "shared" if it runs as a task in the process of its parent."""


@attrs.define(eq=False)
class SpawnRefused(AgentError):
    """Error: the root (supervisor) did not start or stop an agent, or did not pass on a shutdown request."""

    reason: str
    """Reason of the refusal and possible correction, as a text for the model that made the request."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class SpawnOptions:
    """Options of a new agent that `SpawnRequest` and a member of a team file have in common, with the same names."""

    model: str | None = None
    """Model id or alias; None for the model of the agent definition, or else that of the parent."""
    plan: PlanPolicy | None = None
    """Approval of a plan that the agent needs before it may do more than read; None if it needs no approval."""
    budget_usd: Decimal | None = None
    """Dollars that the agent and its descendants may spend together; None if only other budgets limit them."""
    memory: MemoryScope | None = None
    """Scope of the agent's memory; None for the scope in the agent definition."""
    process: Process | None = None
    """Separate process, or task in the parent's process; None for the choice in the agent definition."""

    @property
    def options(self) -> dict[str, Any]:
        """Values of these options by name, as keyword arguments for another class that has the same options."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SpawnOptions)}


@attrs.frozen(kw_only=True)
class SpawnRequest(SpawnOptions):
    """Request to start an agent: a subagent (reports once), a teammate (stays for messages), or a fork."""

    task: str
    """First message to the agent; empty for a teammate that waits for messages from the start."""
    definition: str
    """Name of the agent type, such as `reviewer`."""
    name: str | None = None
    """Name of the new agent; None if the root chooses one, such as `reviewer-1`."""
    fork: str | None = None
    """Path of a file with the parent's conversation, with which a fork begins; None for a new conversation."""
    stays: bool = False
    """True for a teammate, which waits for further messages when its task is done; False for a subagent."""
    isolation: Isolation | None = None
    """"worktree" for a git worktree of its own; None for the choice in the definition, or the parent's directory."""


@attrs.frozen(kw_only=True)
class Spawned:
    """Result of a spawn request: name, incarnation (number of its start) and report id of the started agent."""

    name: str
    incarnation: int
    report: MessageId
    """Message id of the report about the task. The report arrives exactly once, even if the agent crashes."""


class Spawner(Protocol):
    """Protocol of the service that starts and stops agents for one agent, the requester."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Start an agent as a child of the requester, and return once it runs. Raises `SpawnRefused`."""

    async def stop(self, name: str) -> None:
        """Stop *name*, a descendant of the requester, with all agents below it; return when they have ended.

        Later messages do not start *name* again. Raises `SpawnRefused` if *name* is not a running descendant.
        """

    async def request_shutdown(self, request: Envelope) -> None:
        """Send *request*, a shutdown request, to its recipient, a descendant of the requester; return when it is sent.

        Raises `SpawnRefused`, also if the requester is not the lead, or *request* names an earlier incarnation (start).
        """

    async def wait_until_idle(self) -> None:
        """Wait until all descendants of the requester are idle, and no mail in their mailbox files would wake them.

        Unread messages that agents of one process sent to each other in memory are not considered.
        """
