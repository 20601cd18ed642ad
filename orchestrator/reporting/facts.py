"""What a report is made of: a session as its files have it, in frozen facts that say nothing of how they look."""

from typing import Literal

import attrs

from coterie.agents.events import CacheBroke
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.ledger.sharing import Alternatives
from coterie.orchestrator.ledger.spending import Row, Spending
from coterie.orchestrator.overview import SessionState
from coterie.orchestrator.session import Session

Topic = Literal["agents", "errors", "retries", "permissions", "context", "cache", "mail", "approvals", "files"]
"""What a notable event is about."""
LetterState = Literal["waiting", "delivered", "dead"]


@attrs.frozen(kw_only=True)
class Stretch:
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
class ProgressWords:
    """What an agent was at, in a few words of a small model."""

    at: float
    text: str


@attrs.frozen(kw_only=True)
class AgentLife:
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
    stretches: tuple[Stretch, ...] = ()
    marks: tuple[Mark, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    progress: tuple[ProgressWords, ...] = ()
    result: str | None = None
    """The text of its last reply; None if it has not finished a run."""

    @property
    def restarts(self) -> int:
        """How often it was started again, after a crash or because there was more to do."""
        return sum(mark.kind == "started_again" for mark in self.marks)


@attrs.frozen(kw_only=True)
class Letter:
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
    state: LetterState
    delivered: float | None = None
    reason: str | None = None
    """Why it is dead."""


@attrs.frozen(kw_only=True)
class Request:
    """A request to the model, as it was billed."""

    line: LedgerLine
    broke: CacheBroke | None = None
    """What its agent found out about the cache that was missed."""


@attrs.frozen(kw_only=True)
class Costs:
    """The bill, as `coterie costs` has it."""

    agents: tuple[Row, ...] = ()
    purposes: tuple[Row, ...] = ()
    models: tuple[Row, ...] = ()
    total: Spending
    alternatives: Alternatives


@attrs.frozen(kw_only=True)
class Answer:
    """What was said to a request for approval, or instead of an answer that counts."""

    at: float
    verdict: Literal["approved", "rejected", "withdrawn", "refused"]
    by: str
    text: str = ""
    """Feedback; of one that does not count, why."""


@attrs.frozen(kw_only=True)
class Approval:
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
    answers: tuple[Answer, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the agent still waits."""
        return self.at is not None and all(answer.verdict == "refused" for answer in self.answers)


@attrs.frozen(kw_only=True)
class Notable:
    """An event that somebody who looks for trouble, or for what the layers did, wants to find."""

    at: float
    agent: str
    topic: Topic
    text: str


@attrs.frozen(kw_only=True)
class Unread:
    """Something of the session that cannot be read, and is missing in everything else."""

    where: str
    reason: str


@attrs.frozen(kw_only=True)
class SessionFacts:
    """A session, running or not, at one moment."""

    session: Session
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
    agents: tuple[AgentLife, ...]
    """As a tree: each behind who started it."""
    letters: tuple[Letter, ...]
    requests: tuple[Request, ...]
    """In the order of the ledger."""
    costs: Costs
    approvals: tuple[Approval, ...]
    notables: tuple[Notable, ...]
    unread: tuple[Unread, ...]
    result: str | None
    """What the agent that the user talks to said at the end of its last run; None if that has not ended."""
