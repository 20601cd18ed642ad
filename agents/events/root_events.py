"""Events of the root (the process that supervises a session): agent states, approvals, budget, MCP, cleanup."""

from typing import Literal

from coterie.agents.events.agent_events import Event

AgentState = Literal[
    "starting", "running", "waiting", "idle", "plan_pending", "stopping", "done", "failed", "killed", "stalled"
]
"""State of an agent. The event describes what a "waiting" agent waits for. A "stalled" agent is alive, but was silent
for too long.
"""


class ApprovalAsked(Event, tag="approval_asked", frozen=True):
    """An agent waits for the approval of a plan or call. The request survives a crash. Emitted by the root process."""

    id: str
    what: Literal["plan", "permission"]
    name: str
    """Name of the agent that waits."""
    incarnation: int
    by: str
    """Approver that was asked: `lead` (the first agent of the session), `human` (the user) or `rule`."""
    subject: str
    """First line of the plan, or text of the tool call, that needs the approval."""


class ApprovalDecided(Event, tag="approval_decided", frozen=True):
    """An approval request was approved, rejected or withdrawn. Emitted by the root process of the session."""

    id: str
    name: str
    verdict: Literal["approved", "rejected", "withdrawn"]
    by: str
    """Approver that decided: `lead`, `human` or `rule`. For a withdrawn request, the name of the requesting agent."""
    feedback: str = ""


class ApprovalRejected(Event, tag="answer_refused", frozen=True):
    """An answer to an approval request, or a stored approval, is invalid and has no effect. From the root process."""

    id: str
    by: str
    """Sender of the answer, or path of the stored approval file that is not valid."""
    reason: str


class McpChanged(Event, tag="mcp_changed", frozen=True):
    """An MCP server (a server of external tools) was connected, failed to connect, or was lost."""

    server: str
    state: Literal["connected", "failed", "lost"]
    reason: str = ""
    owner: str | None = None
    """Agent start (name and number) that alone uses this connection; None for a connection that all agents share."""
    pid: int | None = None


class Budgeted(Event, tag="budgeted", frozen=True):
    """Budget of the session in dollars. Emitted when the root starts, except for a new session without a budget."""

    dollars: str | None
    """Exact dollars, as a decimal number; None for no limit."""


class AgentChanged(Event, tag="agent_changed", frozen=True):
    """The state of an agent process has changed. Emitted by the root process, which supervises all agents."""

    name: str
    incarnation: int
    state: AgentState
    what: str = ""
    """Details of the state: what the agent waits for, or why it was restarted, has stalled or has ended."""
    pid: int | None = None
    parent: str | None = None
    report: str | None = None
    """Id of the message with the report to the parent, for an agent that has ended; None without a parent."""


class CleanedUp(Event, tag="cleaned_up", frozen=True):
    """After the root process of a session was killed, the cleanup daemon has killed its agents and repaired its files.

    The daemon writes this event to the event log of the killed root.
    """

    killed: int
    """Number of leftover processes that the daemon killed."""
    mended: list[str]
    """One line for each repaired problem: the kind of the problem, and the repair."""
    failures: list[str]
    """One line for each process that was not killed, problem that was not repaired, and error of the cleanup daemon."""
    is_taken_over: bool = False
    """True if a new root process has resumed the session first, so that the daemon repaired nothing."""
