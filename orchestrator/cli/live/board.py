"""Board: agents, approvals, mail, news and costs of a session for the live display; reads no file, draws nothing."""

from collections import Counter, deque
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import attrs

from coterie.agents.definitions.front_matter_fields import color_code
from coterie.agents.events.agent_events import (
    Event,
    Finished,
    ProgressSummarized,
    RunStarted,
    TextEmitted,
    ToolEnded,
    ToolStarted,
)
from coterie.agents.events.event_reader import MailDelivered, MessageRecorded, ReplyRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided, Budgeted
from coterie.agents.permissions.plan_approval import HUMAN
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.cli.live.news_feed import NewsFeed
from coterie.orchestrator.cli.live.rows import (
    INTERRUPTED,
    AgentRow,
    ApprovalRow,
    MailRow,
    NewsRow,
    Way,
    clean_text,
    message_gist,
)
from coterie.orchestrator.cli.views.event_text import reply_text
from coterie.orchestrator.gateway.cost_totals import CostTotals
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.session_directory import MAIN

KEPT = 200
"""Maximum number of messages, and of news lines, that a board stores; more than a terminal has lines."""


@attrs.define(eq=False, kw_only=True)
class SessionBoard:
    """State of a session for the live display. Callers pass its events in order, its model call costs and its mail."""

    session: str
    task: str = attrs.field(converter=clean_text)
    started: float
    state: str = "running"
    """State of the session: `running`, `ended` or `interrupted`."""
    budget: Decimal | None = attrs.field(default=None, init=False)
    """Dollars that all agents of the session may spend together; None for no limit."""
    reason: str = ""
    """Reason why the last run of the lead (first agent) ended; empty if that run has not ended or the session runs."""
    finished: Finished | None = attrs.field(default=None, init=False)
    """Event at the end of the last run of the lead (first agent of the session); None until that run has ended."""
    agents: dict[str, AgentRow] = attrs.field(factory=dict, init=False)
    approvals: dict[str, ApprovalRow] = attrs.field(factory=dict, init=False)
    """Approval requests that are not decided yet, by id, oldest first."""
    letters: deque[MailRow] = attrs.field(factory=lambda: deque(maxlen=KEPT), init=False)
    letters_count: int = attrs.field(default=0, init=False)
    news: deque[NewsRow] = attrs.field(factory=lambda: deque(maxlen=KEPT), init=False)
    news_count: int = attrs.field(default=0, init=False)
    spending: CostTotals = attrs.field(factory=CostTotals, init=False)
    _early: deque[str] = attrs.field(factory=lambda: deque(maxlen=5 * KEPT), init=False)
    """Ids of delivered messages that `add_mail` has not listed yet, so that it lists them as delivered."""
    _news_feed: NewsFeed = attrs.field(factory=NewsFeed, init=False)

    def handle(self, observed: SessionEvent) -> bool:
        """Update the board by one event. Return False for an event that it ignores: unknown, or a piece of a reply."""
        if observed.event is None or isinstance(observed.event, TextEmitted):
            return False
        if (news := self._news_feed.to_news(observed)) is not None:
            self.news.append(news)
            self.news_count += 1
        self._fold(observed.event, clean_text(observed.agent), observed.at)
        return True

    def add_cost(self, line: LedgerEntry) -> None:
        """Add the cost of the model call in *line* to the totals of the session and to the row of its agent."""
        spent = CostTotals.of(line)
        self.spending += spent
        row = self._row(clean_text(line.agent))
        self._put(
            attrs.evolve(
                row, spending=row.spending + spent, parent=row.parent or (line.parent and clean_text(line.parent))
            )
        )

    def add_mail(self, envelope: Envelope, way: Way = "stored") -> None:
        """Add a message to the board's mail; if *way* is not `stored` and it is listed, only set its delivery state."""
        if way != "stored" and self._update_mail(str(envelope.id), way):
            return
        if way == "stored" and envelope.id in self._early:
            way = "delivered"
        self.letters_count += 1
        self.letters.append(
            MailRow(
                id=envelope.id,
                at=envelope.created,
                sender=clean_text(envelope.sender.name),
                recipient=clean_text(envelope.recipient.name),
                kind=envelope.kind,
                gist=clean_text(envelope.summary or message_gist(envelope.body)),
                way=way,
            )
        )

    def end(self, state: str, reason: str | None) -> None:
        """Set *state* and *reason* of a session that no longer runs; mark agents without an end as interrupted."""
        self.state, self.reason = state, clean_text(reason or "")
        for row in self.agents.values():
            if not row.has_ended:
                self._put(attrs.evolve(row, state=INTERRUPTED, what="", calls=()))

    def tree(self, only: str | None = None) -> list[tuple[int, AgentRow]]:
        """Return the agents with their depth in the tree, each parent directly before its subtree.

        With *only*, return that agent and its descendants; an agent without a row yet is returned alone, as starting.
        """
        below: dict[str | None, list[AgentRow]] = {}
        for row in self.agents.values():
            below.setdefault(self._parent(row), []).append(row)

        def walk(rows: Iterable[AgentRow], depth: int) -> Iterable[tuple[int, AgentRow]]:
            for row in rows:
                yield depth, row
                yield from walk(below.get(row.name, ()), depth + 1)

        if only is not None:
            return list(walk([self._row(only)], 0))
        return list(walk(below.get(None, ()), 0))

    def open_approvals(self, only: str | None = None) -> list[ApprovalRow]:
        """Return undecided requests, those to the user first; with *only*, those of that agent and its descendants."""
        names = None if only is None else {row.name for _, row in self.tree(only)}
        found = [row for row in self.approvals.values() if names is None or row.name in names]
        return sorted(found, key=lambda row: row.by != HUMAN)

    def states(self) -> Counter[str]:
        """Return the number of agents in each state; an agent that waits for an approval counts as `asks`."""
        asking = self.agents_awaiting_approval()
        return Counter("asks" if row.name in asking else row.state_text for row in self.agents.values())

    def agents_awaiting_approval(self) -> set[str]:
        """Return the names of agents with an open approval that are active (not starting, stopping, stalled, ended)."""
        names = {approval.name for approval in self.approvals.values()}
        return {row.name for row in self.agents.values() if row.name in names and row.is_active}

    def _fold(self, event: Event, agent: str, at: float) -> None:  # noqa: C901 - one case for each type of event
        match event:
            case AgentChanged():
                self._change(event, at)
            case Budgeted():
                self.budget = None if event.dollars is None else Decimal(event.dollars)
            case ApprovalAsked():
                self._add_approval(event, at)
            case ApprovalDecided():
                self.approvals.pop(event.id, None)
            case MailDelivered():
                self._early.extend(id_ for id_ in event.ids if not self._update_mail(id_, "delivered"))
            case RunStarted():
                self.finished = None if agent == MAIN else self.finished
                kind = clean_text(event.definition or "")
                color = (event.color and color_code(event.color)) or ""
                self._set(agent, model=clean_text(event.model), kind=kind, color=color, calls=(), progress="")
            case ProgressSummarized():
                self._set(agent, progress=clean_text(event.text))
            case ReplyRecorded(is_taken=True):
                self._set(agent, turns=self._row(agent).turns + 1)
            case MessageRecorded(role="assistant") if self._news_feed.has_started(agent):
                self._set(agent, said=clean_text(reply_text(event)) or self._row(agent).said)
            case ToolStarted():
                call = (event.id, self._news_feed.brief(agent, event.id, event.name))
                self._set(agent, calls=(*self._row(agent).calls, call))
            case ToolEnded():
                self._set(agent, calls=tuple(call for call in self._row(agent).calls if call[0] != event.id))
            case Finished():
                self.finished = event if agent == MAIN else self.finished
                self._set(agent, calls=(), progress="")

    def _change(self, event: AgentChanged, at: float) -> None:
        name = clean_text(event.name)
        row = self._row(name)
        if event.incarnation < row.incarnation:
            return  # an event of an earlier incarnation
        changed = attrs.evolve(
            row,
            incarnation=event.incarnation,
            state=event.state,
            what=clean_text(event.what),
            since=row.since if row.state == event.state and row.since else at,
            parent=clean_text(event.parent) if event.parent is not None else row.parent,
            pid=event.pid,
        )
        self._put(attrs.evolve(changed, calls=(), progress="") if changed.has_ended else changed)

    def _add_approval(self, event: ApprovalAsked, at: float) -> None:
        self.approvals[event.id] = ApprovalRow(
            id=event.id,
            what=event.what,
            name=clean_text(event.name),
            by=clean_text(event.by),
            subject=clean_text(event.subject),
            at=at,
        )

    def _update_mail(self, id_: str, way: Way) -> bool:
        """Set the delivery state of message *id_* to *way*; return False if the board does not list the message."""
        for index in range(len(self.letters) - 1, -1, -1):
            if self.letters[index].id == id_:
                self.letters[index] = attrs.evolve(self.letters[index], way=way)
                return True
        return False

    def _row(self, name: str) -> AgentRow:
        return self.agents.get(name) or AgentRow(name=name)

    def _put(self, row: AgentRow) -> None:
        self.agents[row.name] = row

    def _set(self, name: str, **facts: Any) -> None:
        self._put(attrs.evolve(self._row(name), **facts))

    def _parent(self, row: AgentRow) -> str | None:
        """Return the parent's name; None if the parent has no row, or the agent is its own ancestor by damaged data."""
        seen, ancestor = {row.name}, row.parent
        while ancestor in self.agents and ancestor not in seen:
            seen.add(ancestor)
            ancestor = self.agents[ancestor].parent
        is_own = ancestor == row.name or row.parent not in self.agents
        return None if is_own else row.parent
