"""Report data: frozen records of a session as its files have it, and their JSON form."""

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
"""What a notable event is about."""
MailItemState = Literal["waiting", "delivered", "dead"]


@attrs.frozen(kw_only=True)
class Interval:
    """A start of an agent was in one state for a while."""

    incarnation: int
    state: str
    since: float
    until: float
    what: str = ""


@attrs.frozen(kw_only=True)
class Mark:
    """A moment in the life of an agent: a start, or an end."""

    at: float
    kind: Literal["started", "started_again", "done", "failed", "killed", "interrupted"]
    incarnation: int
    what: str = ""


@attrs.frozen(kw_only=True)
class ModelCall:
    """A call of the model for a turn of the agent itself."""

    since: float
    until: float
    turn: int
    read: int
    """Tokens from the cache."""
    prompt: int
    output: int
    cost_usd: str


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call of a tool."""

    since: float
    until: float
    name: str
    is_error: bool
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ProgressLine:
    """What an agent was at, in a few words of a small model."""

    at: float
    text: str


@attrs.frozen(kw_only=True)
class AgentTimeline:
    """One agent, over all of its starts."""

    name: str
    parent: str | None = None
    depth: int = 0
    """How many spawns from the one the user talks to."""
    kind: str | None = None
    model: str | None = None
    task: str = ""
    state: str = "unknown"
    """The last one, as `coterie list` says it."""
    why: str = ""
    """What it waits for, or why it has ended."""
    incarnations: int = 1
    stretches: tuple[Interval, ...] = ()
    marks: tuple[Mark, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    progress: tuple[ProgressLine, ...] = ()
    result: str | None = None
    """The text of its last reply; None if it has not finished a run."""

    @property
    def restarts(self) -> int:
        """How often it was started again, after a crash or because there was more to do."""
        return sum(mark.kind == "started_again" for mark in self.marks)


@attrs.frozen(kw_only=True)
class MailItem:
    """A message, and how far it has come."""

    id: str | None
    """None for bytes that are no message."""
    at: float
    """When it was written; of one that is known by its delivery alone, when that was."""
    sender: str
    recipient: str
    kind: str
    gist: str
    """Its summary, or the beginning of what it says."""
    state: MailItemState
    delivered: float | None = None
    reason: str | None = None
    """Why it is dead."""


@attrs.frozen(kw_only=True)
class BilledRequest:
    """A request to the model, as it was billed."""

    line: LedgerEntry
    broke: CacheBroke | None = None
    """What its agent found out about the cache that was missed."""


@attrs.frozen(kw_only=True)
class ReportCosts:
    """The bill, as `coterie costs` has it."""

    agents: tuple[CostRow, ...] = ()
    purposes: tuple[CostRow, ...] = ()
    models: tuple[CostRow, ...] = ()
    total: CostTotals
    alternatives: CostAlternatives


@attrs.frozen(kw_only=True)
class ApprovalAnswer:
    """What was said to a request for approval, or instead of an answer that counts."""

    at: float
    verdict: Literal["approved", "rejected", "withdrawn", "refused"]
    by: str
    text: str = ""
    """Feedback; of one that does not count, why."""


@attrs.frozen(kw_only=True)
class ApprovalSummary:
    """Something that an agent might only do after a yes."""

    id: str
    at: float | None
    """When it was asked for; None if only answers are on record, as to one that nobody had asked for."""
    what: str = ""
    agent: str = ""
    incarnation: int = 0
    by: str = ""
    """Who decides."""
    subject: str = ""
    answers: tuple[ApprovalAnswer, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the agent still waits."""
        return self.at is not None and all(answer.verdict == "refused" for answer in self.answers)


@attrs.frozen(kw_only=True)
class NotableEvent:
    """An event that somebody who looks for trouble, or for what the layers did, wants to find."""

    at: float
    agent: str
    topic: Topic
    text: str


@attrs.frozen(kw_only=True)
class UnreadableFile:
    """Something of the session that cannot be read, and is missing in everything else."""

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class SessionFacts:
    """A session, running or not, at one moment."""

    session: SessionDirectory
    state: SessionState
    reason: str | None
    """Of one whose last run has ended: how."""
    error: str | None
    """What went wrong at its end."""
    read_at: float
    """When this was read, by the session's clock."""
    first: float
    last: float
    """When its first and its last event happened; of one that runs, the last is when this was read."""
    agents: tuple[AgentTimeline, ...]
    """As a tree: each behind who started it."""
    letters: tuple[MailItem, ...]
    requests: tuple[BilledRequest, ...]
    """In the order of the ledger."""
    costs: ReportCosts
    approvals: tuple[ApprovalSummary, ...]
    notables: tuple[NotableEvent, ...]
    unread: tuple[UnreadableFile, ...]
    result: str | None
    """What the agent that the user talks to said at the end of its last run; None if that has not ended."""


def to_mapping(facts: SessionFacts) -> dict[str, Any]:
    """All of *facts* as JSON has it; dollars are exact decimal numbers in strings."""
    apart = {"costs": _costs(facts.costs), "requests": [_request(request) for request in facts.requests]}
    others = attrs.asdict(attrs.evolve(facts, requests=()), value_serializer=_plain)
    return {**others, **apart}


def _costs(costs: ReportCosts) -> dict[str, Any]:
    """As `coterie costs --json` has them, for each grouping."""
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
    """The line of the ledger, what it missed, and why."""
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
            facts.pop("kind", None)  # where it stands says what it is
            return facts
        case _:
            return value
