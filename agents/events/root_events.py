"""Events of the root: agent states, approvals, budgets and MCP servers."""

from typing import Literal

from coterie.agents.events.agent_events import Event

AgentState = Literal[
    "starting", "running", "waiting", "idle", "plan_pending", "stopping", "done", "failed", "killed", "stalled"
]
"""State of an agent. "waiting" comes with a description; "stalled" means alive, but silent for too long."""


class ApprovalAsked(Event, tag="approval_asked", frozen=True):
    """An agent waits for an approval; it continues to wait after a crash. Emitted by the root."""

    id: str
    what: Literal["plan", "permission"]
    name: str
    """Agent that waits."""
    incarnation: int
    by: str
    """Approver: lead, human or rule."""
    subject: str
    """First line of the plan, or the call."""


class ApprovalDecided(Event, tag="approval_decided", frozen=True):
    """An approval is no longer open. Emitted by the root."""

    id: str
    name: str
    verdict: Literal["approved", "rejected", "withdrawn"]
    by: str
    """Approver: lead, human or rule; for a withdrawn approval, the agent itself."""
    feedback: str = ""


class ApprovalRejected(Event, tag="answer_refused", frozen=True):
    """An answer to an approval was rejected and has no effect. Emitted by the root."""

    id: str
    by: str
    """Sender of the answer, or the file that contained it."""
    reason: str


class McpChanged(Event, tag="mcp_changed", frozen=True):
    """An MCP server is connected, failed to connect, or was lost. Emitted by the root."""

    server: str
    state: Literal["connected", "failed", "lost"]
    reason: str = ""
    owner: str | None = None
    """Incarnation of the agent that has this connection for itself; None for the connection that all agents share."""
    pid: int | None = None


class Budgeted(Event, tag="budgeted", frozen=True):
    """Dollars that all agents of the session may spend together. Emitted by the root when it starts."""

    dollars: str | None
    """Exact dollars, as a decimal number; None for no limit."""


class AgentChanged(Event, tag="agent_changed", frozen=True):
    """The state of an agent process has changed. Emitted by the root."""

    name: str
    incarnation: int
    state: AgentState
    what: str = ""
    """Description of what the agent waits for, or why it has ended."""
    pid: int | None = None
    parent: str | None = None
    report: str | None = None
    """Id of the message with the report to the parent, for an agent that has ended."""


class CleanedUp(Event, tag="cleaned_up", frozen=True):
    """The cleanup daemon has cleaned up after a killed root, and logs it in the event log of this root."""

    killed: int
    """Number of killed processes."""
    mended: list[str]
    """Records and files that were repaired, with the repair."""
    failures: list[str]
    """Processes and files that could not be killed or repaired, with the reason."""
    is_taken_over: bool = False
    """True if a new root started first and does the remaining repairs."""
