"""Report data: frozen records of a session, and their JSON form."""

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
"""Topic of a notable event."""
MailItemState = Literal["waiting", "delivered", "dead"]


@attrs.frozen(kw_only=True)
class Interval:
    """A time in which an incarnation of an agent was in one state."""

    incarnation: int
    state: str
    since: float
    until: float
    what: str = ""


@attrs.frozen(kw_only=True)
class Mark:
    """A start or an end of an agent."""

    at: float
    kind: Literal["started", "started_again", "done", "failed", "killed", "interrupted"]
    incarnation: int
    what: str = ""


@attrs.frozen(kw_only=True)
class ModelCall:
    """A model call for a turn of the agent."""

    since: float
    until: float
    turn: int
    read: int
    """Tokens read from the cache."""
    prompt: int
    output: int
    cost_usd: str


@attrs.frozen(kw_only=True)
class ToolCall:
    """A tool call."""

    since: float
    until: float
    name: str
    is_error: bool
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ProgressLine:
    """A progress summary of an agent."""

    at: float
    text: str


@attrs.frozen(kw_only=True)
class AgentTimeline:
    """One agent over all of its incarnations."""

    name: str
    parent: str | None = None
    depth: int = 0
    """Depth in the tree of agents; 0 for the lead."""
    kind: str | None = None
    model: str | None = None
    task: str = ""
    state: str = "unknown"
    """Last state, as in `coterie list`."""
    why: str = ""
    """Reason for the state: the pending request, or the cause of the end."""
    incarnations: int = 1
    stretches: tuple[Interval, ...] = ()
    marks: tuple[Mark, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    progress: tuple[ProgressLine, ...] = ()
    result: str | None = None
    """Text of the last reply; None if the agent has not finished a run."""

    @property
    def restarts(self) -> int:
        """Number of restarts, after a crash or for more work."""
        return sum(mark.kind == "started_again" for mark in self.marks)


@attrs.frozen(kw_only=True)
class MailItem:
    """A message with its delivery state."""

    id: str | None
    """Id of the message; None for bytes that are not a message."""
    at: float
    """Time of its creation; the time of delivery if nothing else is known."""
    sender: str
    recipient: str
    kind: str
    gist: str
    """Summary of the message, or the beginning of its text."""
    state: MailItemState
    delivered: float | None = None
    reason: str | None = None
    """Reason why the message is a dead letter."""


@attrs.frozen(kw_only=True)
class BilledRequest:
    """A billed model request."""

    line: LedgerEntry
    broke: CacheBroke | None = None
    """Cache miss that the agent reported for the request."""


@attrs.frozen(kw_only=True)
class ReportCosts:
    """Costs of a session, as in `coterie costs`."""

    agents: tuple[CostRow, ...] = ()
    purposes: tuple[CostRow, ...] = ()
    models: tuple[CostRow, ...] = ()
    total: CostTotals
    alternatives: CostAlternatives


@attrs.frozen(kw_only=True)
class ApprovalAnswer:
    """An answer to a request for approval, or an answer that was ignored."""

    at: float
    verdict: Literal["approved", "rejected", "withdrawn", "refused"]
    by: str
    text: str = ""
    """Feedback, or the reason why the answer was ignored."""


@attrs.frozen(kw_only=True)
class ApprovalSummary:
    """A request for approval and its answers."""

    id: str
    at: float | None
    """Time of the request; None if only answers are recorded."""
    what: str = ""
    agent: str = ""
    incarnation: int = 0
    by: str = ""
    """Decider of the request."""
    subject: str = ""
    answers: tuple[ApprovalAnswer, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if the request has no answer yet."""
        return self.at is not None and all(answer.verdict == "refused" for answer in self.answers)


@attrs.frozen(kw_only=True)
class NotableEvent:
    """An event that shows an error or an action of a layer."""

    at: float
    agent: str
    topic: Topic
    text: str


@attrs.frozen(kw_only=True)
class UnreadableFile:
    """A file or line of the session that cannot be read, so the report lacks its content."""

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class SessionFacts:
    """All data of a report: one session at one time."""

    session: SessionDirectory
    state: SessionState
    reason: str | None
    """Outcome of the last run; None while the session is running."""
    error: str | None
    """Error at the end of the last run."""
    read_at: float
    """Time of reading, by the session's clock."""
    first: float
    last: float
    """Times of the first and the last event; while the session is running, `last` is `read_at`."""
    agents: tuple[AgentTimeline, ...]
    """Agents in tree order."""
    letters: tuple[MailItem, ...]
    requests: tuple[BilledRequest, ...]
    """Requests in the order of the ledger."""
    costs: ReportCosts
    approvals: tuple[ApprovalSummary, ...]
    notables: tuple[NotableEvent, ...]
    unread: tuple[UnreadableFile, ...]
    result: str | None
    """Last reply of the lead; None if its last run has not finished."""


def to_mapping(facts: SessionFacts) -> dict[str, Any]:
    """Convert *facts* to JSON values; dollars are strings with exact decimals."""
    apart = {"costs": _costs(facts.costs), "requests": [_request(request) for request in facts.requests]}
    others = attrs.asdict(attrs.evolve(facts, requests=()), value_serializer=_plain)
    return {**others, **apart}


def _costs(costs: ReportCosts) -> dict[str, Any]:
    """Costs in the form of `coterie costs --json`, for each grouping."""
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
    """The ledger entry of a request, with its missed tokens and the cause."""
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
