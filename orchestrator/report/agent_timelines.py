"""Builder of the timelines in a report: states, starts, ends and calls of each agent, from the session's events."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from coterie.agents.events.agent_events import Finished, ProgressSummarized, RunStarted, ToolEnded
from coterie.agents.events.event_reader import ReplyRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.contract import Member
from coterie.orchestrator.report.report_data import AgentTimeline, Interval, Mark, ModelCall, ProgressLine, ToolCall
from coterie.orchestrator.session.overview import END_STATES

ROOT = "root"
"""Name of the root (supervisor process of the session) as the writer of events; it is no agent, so has no timeline."""


@attrs.define(eq=False)
class TimelineBuilder:
    """Timeline of one agent under construction: states, starts, ends and calls, from the events handled so far."""

    name: str
    parent: str | None = None
    kind: str | None = None
    model: str | None = None
    result: str | None = None
    incarnation: int = 1
    begun: int = 0
    """Number of the agent's process (counted over restarts) for which a start was recorded last; 0 before the first."""
    open: Interval | None = None
    """Interval of the agent's current state; None before the agent has started and after it has ended."""
    last: float = 0.0
    """Time of the agent's latest event so far, in seconds since 1970."""
    is_reported: bool = False
    """True if states are taken from the root's (supervisor's) events, not from the agent's own start and end events."""
    stretches: list[Interval] = attrs.field(factory=list)
    marks: list[Mark] = attrs.field(factory=list)
    model_calls: list[ModelCall] = attrs.field(factory=list)
    tool_calls: list[ToolCall] = attrs.field(factory=list)
    progress: list[ProgressLine] = attrs.field(factory=list)

    def change(self, state: str, incarnation: int, at: float, what: str = "") -> None:
        """Record that process *incarnation* of the agent entered *state* at time *at*; mark a start or end."""
        if self.open is not None and self.open.incarnation != incarnation:
            self.interrupt()  # a root that is killed does not report the end of its agents
        self.close(at)
        if state in END_STATES:
            self._mark(state, at, what)
            return
        if incarnation != self.begun:
            self.begun = self.incarnation = incarnation
            self._mark("started" if incarnation == 1 else "started_again", at, what)
        self.open = Interval(incarnation=incarnation, state=state, since=at, until=at, what=what)

    def close(self, at: float) -> None:
        """End the interval of the current state at time *at* and store it; do nothing without a current state."""
        if self.open is not None:
            self.stretches.append(attrs.evolve(self.open, until=max(at, self.open.since)))
            self.open = None

    def interrupt(self) -> None:
        """Mark an agent that has no end yet as interrupted, at its last event; no-op if it has ended or not started."""
        if self.open is not None:
            self.close(self.last)
            self._mark("interrupted", self.last, "")

    def handle(self, observed: SessionEvent) -> None:
        """Record an event of the agent: start, end, model call, tool call or progress summary; ignore others."""
        at = observed.at
        match observed.event:
            case RunStarted() as event:
                self.kind, self.model = event.definition, event.model
                if not self.is_reported:
                    self.change("running", event.incarnation, at)
            case Finished() as event:
                self.result = event.result
                if not self.is_reported:
                    self.change("failed" if event.error else "done", self.incarnation, at, event.error or "")
            case ReplyRecorded() as event:
                self.model_calls.append(_model_call(event, at))
            case ToolEnded() as event:
                self.tool_calls.append(_tool_call(event, at))
            case ProgressSummarized() as event:
                self.progress.append(ProgressLine(at=at, text=event.text))
            case _:
                pass
        self.last = max(self.last, at)

    def _mark(self, kind: str, at: float, what: str) -> None:
        self.marks.append(Mark(at=at, kind=kind, incarnation=self.incarnation, what=what))  # type: ignore[arg-type]  # a state that ends is one


@attrs.define(eq=False)
class TimelineBuilders:
    """Builder of the timelines of all agents of a session. Pass the events in order to `handle`, then call `build`."""

    _builders: dict[str, TimelineBuilder] = attrs.field(factory=dict, init=False)

    def handle(self, observed: SessionEvent) -> None:
        """Add one event to the timeline of the agent that it is about; ignore events that are not about an agent."""
        if isinstance(event := observed.event, AgentChanged):
            builder = self._builder(event.name)
            builder.is_reported, builder.parent = True, event.parent
            builder.change(event.state, event.incarnation, observed.at, event.what)
            builder.last = max(builder.last, observed.at)
        elif observed.agent != ROOT:
            self._builder(observed.agent).handle(observed)

    def build(self, members: Mapping[str, Member], *, now: float | None) -> list[AgentTimeline]:
        """Return the timelines of all agents, each parent before its children; also of *members* without any event.

        *now* is the present time if the session is running. It is None for a session that does not run; its agents
        without a recorded end are marked as interrupted.
        """
        for name in members:
            self._builder(name)
        for builder in self._builders.values():
            if now is None:
                builder.interrupt()
        parents = {name: self._parent(name, members) for name in self._builders}
        timelines = [self._build_one(builder, members.get(builder.name), now) for builder in self._builders.values()]
        return list(_tree([attrs.evolve(each, parent=parents[each.name]) for each in timelines]))

    def _builder(self, name: str) -> TimelineBuilder:
        if (builder := self._builders.get(name)) is None:
            builder = self._builders[name] = TimelineBuilder(name)
        return builder

    def _parent(self, name: str, members: Mapping[str, Member]) -> str | None:
        member = members.get(name)
        found = self._builders[name].parent or (None if member is None else member.engagement.parent)
        return found if found in self._builders and found != name else None

    def _build_one(self, builder: TimelineBuilder, member: Member | None, now: float | None) -> AgentTimeline:
        state, why = _state(builder, member, is_alive=now is not None)
        if now is not None:
            builder.close(now)
        engagement = None if member is None else member.engagement
        return AgentTimeline(
            name=builder.name,
            kind=builder.kind or (engagement.kind if engagement else None),
            model=builder.model,
            task=engagement.task if engagement else "",
            state=state,
            why=why,
            incarnations=max(builder.incarnation, 1 if member is None else member.incarnation),
            stretches=tuple(builder.stretches),
            marks=tuple(builder.marks),
            model_calls=tuple(builder.model_calls),
            tool_calls=tuple(builder.tool_calls),
            progress=tuple(builder.progress),
            result=builder.result,
        )


def _state(builder: TimelineBuilder, member: Member | None, *, is_alive: bool) -> tuple[str, str]:
    if builder.open is not None:
        return builder.open.state, builder.open.what
    if builder.marks:
        return builder.marks[-1].kind, builder.marks[-1].what
    if member is None:
        return "unknown", ""
    return (member.state if is_alive or member.state == "ended" else "interrupted"), ""


def _tree(agents: Iterable[AgentTimeline]) -> Iterable[AgentTimeline]:
    """Yield *agents* with depths, parents before children; break a cycle of parents by removing one agent's parent."""
    children: defaultdict[str | None, list[AgentTimeline]] = defaultdict(list)
    for agent in agents:
        children[agent.parent].append(agent)
    left = {agent.name: agent for found in children.values() for agent in found}

    def walk(agent: AgentTimeline, depth: int) -> Iterable[AgentTimeline]:
        if left.pop(agent.name, None) is None:
            return
        yield attrs.evolve(agent, depth=depth)
        for child in children[agent.name]:
            yield from walk(child, depth + 1)

    for top in children[None]:
        yield from walk(top, 0)
    while left:
        yield from walk(attrs.evolve(next(iter(left.values())), parent=None), 0)


def _model_call(event: ReplyRecorded, at: float) -> ModelCall:
    used = event.usage
    facts = {"turn": event.turn, "read": used.read, "prompt": used.prompt, "output": used.output}
    return ModelCall(since=at - event.seconds, until=at, cost_usd=event.cost_usd, **facts)


def _tool_call(event: ToolEnded, at: float) -> ToolCall:
    return ToolCall(since=at - event.seconds, until=at, name=event.name, is_error=event.is_error, reason=event.reason)
