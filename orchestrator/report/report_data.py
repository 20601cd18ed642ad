"""Data of a report: frozen records about one session, from which the page is rendered, and their JSON form."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.events.layer_events import CacheBroke
from coterie.orchestrator.gateway.cache_savings import CostAlternatives
from coterie.orchestrator.gateway.cost_report import row_mapping, spending_mapping
from coterie.orchestrator.gateway.cost_totals import CostRow, CostTotals, Grouping
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.orchestrator.session.overview import SessionState
from coterie.session_directory import SessionDirectory

Topic = Literal["agents", "errors", "retries", "permissions", "context", "cache", "mail", "approvals", "files"]
"""Topic of a notable event, by which the list of events in the report can be filtered."""
MailItemState = Literal["waiting", "delivered", "dead"]


@attrs.frozen(kw_only=True)
class Interval:
    """Period in which one process of an agent (`incarnation` is its number, counted over restarts) was in one state."""

    incarnation: int
    state: str
    since: float
    until: float
    what: str = ""


@attrs.frozen(kw_only=True)
class Mark:
    """Start or end of an agent at a moment; a sign on its timeline, except the first start; `what` is the reason."""

    at: float
    kind: Literal["started", "started_again", "done", "failed", "killed", "interrupted"]
    incarnation: int
    what: str = ""


@attrs.frozen(kw_only=True)
class ModelCall:
    """Model call in the main loop of an agent: start, end, token counts and cost."""

    since: float
    until: float
    turn: int
    read: int
    """Number of prompt tokens that were read from the prompt cache."""
    prompt: int
    output: int
    cost_usd: str


@attrs.frozen(kw_only=True)
class ToolCall:
    """Tool call of an agent: start, end, name of the tool, and for a failed call the first line of the error."""

    since: float
    until: float
    name: str
    is_error: bool
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ProgressLine:
    """One-line summary of an agent's work, which a small model has written at time `at`."""

    at: float
    text: str


@attrs.frozen(kw_only=True)
class AgentTimeline:
    """Data of a report about one agent, over all its restarts: properties, states, marks and calls."""

    name: str
    parent: str | None = None
    depth: int = 0
    """Depth in the tree of agents: 0 for the lead (first agent) and agents of unknown parents, 1 for their children."""
    kind: str | None = None
    model: str | None = None
    task: str = ""
    state: str = "unknown"
    """Last recorded state, such as `running` or `done`; `interrupted` if the session was killed before the end."""
    why: str = ""
    """Reason for the state, such as the request on which the agent waits, or the cause of its end; may be empty."""
    incarnations: int = 1
    stretches: tuple[Interval, ...] = ()
    marks: tuple[Mark, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    progress: tuple[ProgressLine, ...] = ()
    result: str | None = None
    """Text of the agent's last reply; None if none of its runs has finished."""

    @property
    def restarts(self) -> int:
        """Number of times that the agent was started again, after a crash or for more work."""
        return sum(mark.kind == "started_again" for mark in self.marks)


@attrs.frozen(kw_only=True)
class MailItem:
    """Message between agents in the report, with its delivery state."""

    id: str | None
    """Id of the message; None for an entry about damaged bytes in a mailbox, which are no valid message."""
    at: float
    """Time of creation in seconds since 1970; if unknown, time of the delivery or of the record as a dead letter."""
    sender: str
    recipient: str
    kind: str
    gist: str
    """Summary that the sender gave for the message, or the beginning of the message's text."""
    state: MailItemState
    delivered: float | None = None
    reason: str | None = None
    """Reason why the message is a dead letter (undeliverable); None if it is not a dead letter."""


@attrs.frozen(kw_only=True)
class BilledRequest:
    """Model request in the ledger (log of paid calls), with the cache miss that belongs to it."""

    line: LedgerEntry
    broke: CacheBroke | None = None
    """Event in which the agent reported that this request missed the prompt cache; None without such an event."""


@attrs.frozen(kw_only=True)
class ReportCosts:
    """Costs of a session by agent, purpose and model, with the same figures as `coterie costs`."""

    agents: tuple[CostRow, ...] = ()
    purposes: tuple[CostRow, ...] = ()
    models: tuple[CostRow, ...] = ()
    total: CostTotals
    alternatives: CostAlternatives


@attrs.frozen(kw_only=True)
class ApprovalAnswer:
    """Answer to an approval request. Verdict `refused` means that the answer itself was invalid and was ignored."""

    at: float
    verdict: Literal["approved", "rejected", "withdrawn", "refused"]
    by: str
    text: str = ""
    """Feedback for the agent; if the answer was ignored, the reason for ignoring it."""


@attrs.frozen(kw_only=True)
class ApprovalSummary:
    """Approval request of an agent for a plan or a tool call, with all answers to the request."""

    id: str
    at: float | None
    """Time of the request in seconds since 1970; None if only answers to it are recorded."""
    what: str = ""
    agent: str = ""
    incarnation: int = 0
    by: str = ""
    """Approver that the request asks: `lead` (first agent of the session), `human` or `rule`; empty if not recorded."""
    subject: str = ""
    answers: tuple[ApprovalAnswer, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if the request is recorded and has no valid answer yet; ignored answers do not count."""
        return self.at is not None and all(answer.verdict == "refused" for answer in self.answers)


@attrs.frozen(kw_only=True)
class NotableEvent:
    """Entry of the report's list of notable events, such as an error, a retry, a denied call or a compaction."""

    at: float
    agent: str
    topic: Topic
    text: str


@attrs.frozen(kw_only=True)
class UnreadableFile:
    """File of the session, or line of a file, that cannot be read, so that the report lacks its content."""

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class SessionFacts:
    """All data of a report about one session, as collected at one time."""

    session: SessionDirectory
    state: SessionState
    reason: str | None
    """End reason of the lead's (first agent's) last run, such as `completed`; None if running or killed."""
    error: str | None
    """Error that ended the lead's (first agent's) last run; None without an error or while the session is running."""
    read_at: float
    """Time when the session's files were read, in seconds since 1970."""
    first: float
    last: float
    """Time of the last event, or of reading while the session is running; `first` is the time of the first event."""
    agents: tuple[AgentTimeline, ...]
    """Agents in tree order: each parent directly before its subtree."""
    letters: tuple[MailItem, ...]
    requests: tuple[BilledRequest, ...]
    """Model requests in the order of the ledger (log of paid calls)."""
    costs: ReportCosts
    approvals: tuple[ApprovalSummary, ...]
    notables: tuple[NotableEvent, ...]
    unread: tuple[UnreadableFile, ...]
    result: str | None
    """Text of the last reply of the lead (first agent); None if its last run has not finished."""


def to_mapping(facts: SessionFacts) -> dict[str, Any]:
    """Convert *facts* to the JSON object of `coterie report --json`; dollars are strings with exact decimals."""
    apart = {"costs": _costs(facts.costs), "requests": [_request(request) for request in facts.requests]}
    others = attrs.asdict(attrs.evolve(facts, requests=()), value_serializer=_plain)
    return {**others, **apart}


def _costs(costs: ReportCosts) -> dict[str, Any]:
    """Convert *costs* to a JSON object: rows by agent, purpose and model as in `coterie costs`, total, estimates."""
    groups: Sequence[tuple[str, Grouping, Sequence[CostRow]]] = (
        ("agents", "agent", costs.agents),
        ("purposes", "purpose", costs.purposes),
        ("models", "model", costs.models),
    )
    return {
        **{name: [row_mapping(row, by) for row in rows] for name, by, rows in groups},
        "total": spending_mapping(costs.total),
        **{f"{name}_usd": format(cost, "f") for name, cost in attrs.asdict(costs.alternatives).items()},
    }


def _request(request: BilledRequest) -> dict[str, Any]:
    """Convert *request* to a JSON object: its ledger entry, number of missed tokens, and cache miss event or null."""
    line = attrs.asdict(request.line, value_serializer=_plain)
    broke = None if request.broke is None else _plain(None, None, request.broke)
    return {**line, "missed": request.line.missed, "broke": broke}


def _plain(_owner: type | None, _field: Any, value: Any) -> Any:
    match value:
        case Decimal():
            return format(value, "f")
        case Path():
            return str(value)
        case msgspec.Struct():
            facts = msgspec.to_builtins(value)
            facts.pop("kind", None)  # the key that holds the event already names its type
            return facts
        case _:
            return value
