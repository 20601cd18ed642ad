"""Events of the root: agent states, approvals, budgets and MCP servers."""

from typing import Literal

from coterie.agents.events.agent_events import Event

AgentState = Literal[
    "starting", "running", "waiting", "idle", "plan_pending", "stopping", "done", "failed", "killed", "stalled"
]
"""waiting: for something that it names. stalled: alive, and nothing was heard of it for too long."""


class ApprovalAsked(Event, tag="approval_asked", frozen=True):
    """Told by the root: somebody must say yes before an agent goes on. It waits, also over a crash."""

    id: str
    what: Literal["plan", "permission"]
    name: str
    """The agent that asks."""
    incarnation: int
    by: str
    """Who decides: lead, human, or rule."""
    subject: str
    """The first line of the plan, or the call."""


class ApprovalDecided(Event, tag="approval_decided", frozen=True):
    """Told by the root: an approval that was asked for is not open any more."""

    id: str
    name: str
    verdict: Literal["approved", "rejected", "withdrawn"]
    by: str
    """lead, human, rule; of one that was withdrawn, the agent itself."""
    feedback: str = ""


class ApprovalRejected(Event, tag="answer_refused", frozen=True):
    """Told by the root: an answer to an approval that does not count, and changes nothing."""

    id: str
    by: str
    """Who gave it, or the file in which it stood."""
    reason: str


class McpChanged(Event, tag="mcp_changed", frozen=True):
    """Told by the root: an MCP server is connected, could not be, or was lost."""

    server: str
    state: Literal["connected", "failed", "lost"]
    reason: str = ""
    owner: str | None = None
    """Which start of which agent it is for alone; None for the connection that all share."""
    pid: int | None = None


class Budgeted(Event, tag="budgeted", frozen=True):
    """Told by the root when it begins: what all agents of the session may spend together."""

    dollars: str | None
    """Exact, as a decimal number; None if there is no limit any more."""


class AgentChanged(Event, tag="agent_changed", frozen=True):
    """Told by the root: the process of an agent is in another state."""

    name: str
    incarnation: int
    state: AgentState
    what: str = ""
    """What it waits for, or why it has ended."""
    pid: int | None = None
    parent: str | None = None
    report: str | None = None
    """Of one that has ended: the id of the message that tells its parent what came of the task."""


class CleanedUp(Event, tag="cleaned_up", frozen=True):
    """Told by the janitor, in the log of a root that was killed: what was done about all that it left."""

    killed: int
    """Processes."""
    mended: list[str]
    """Records and files, and what was done about each."""
    failures: list[str]
    """What could not be ended or mended, and why."""
    is_taken_over: bool = False
    """A new root came first, and the rest is its."""
