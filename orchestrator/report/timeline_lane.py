"""Lane of the report's timeline: bars and signs for the states, calls, summaries, starts and ends of one agent."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import attrs

from coterie.orchestrator.report.html import Html, agent_name, tag, text, tooltip
from coterie.orchestrator.report.report_data import AgentTimeline, Interval, Mark, ModelCall, ToolCall
from coterie.orchestrator.report.time_scale import WIDTH, TimeScale, since_text, span_text

DRAWN = 9_000
"""Maximum number of shapes in all lanes; to stay below it, shapes that are close together are merged."""
FINEST = 0.1
"""Default minimum distance between two shapes of a kind in a lane, in per cent of the width; closer ones are merged."""
LISTED = 3
"""Maximum number of tool calls, summaries or marks that the tooltip of a merged shape lists."""
TALL = 36
"""Height of a lane in pixels."""

STATE_CLASSES = {"stopping": "starting"}
"""Agent states that are drawn in the color of another state, and that state."""
SIGNS = {"started": "", "started_again": "↻", "done": "■", "failed": "✕", "killed": "✕", "interrupted": "?"}

Item = TypeVar("Item")


@attrs.define(eq=False)
class LaneRenderer:
    """Grouping of the items in lanes: items too close to be drawn apart form one group, drawn as one shape."""

    scale: TimeScale
    finest: float = FINEST
    """Distance, in per cent of the width, below which two items are merged into one shape."""
    merged: int = 0

    @classmethod
    def of(cls, scale: TimeScale, agents: Sequence[AgentTimeline]) -> "LaneRenderer":
        """Return a renderer whose merging distance is large enough that all lanes have at most `DRAWN` shapes."""
        drawing = cls(scale)
        while drawing.finest < WIDTH and drawing._count(agents) > DRAWN:
            drawing.finest *= 2
        drawing.merged = 0
        return drawing

    def since(self, moment: float) -> str:
        """Return *moment* as text, as time since the session's first event, such as `+3.20 s`."""
        return since_text(moment, self.scale.moments[0])

    def thin(self, items: Sequence[Item], when: Callable[[Item], float]) -> Iterator[list[Item]]:
        """Yield groups of *items* (sorted by time); items too close to be drawn apart are in one group."""
        group: list[Item] = []
        begun = 0.0
        for item in items:
            place = self.scale.position(when(item))
            if group and place - begun < self.finest:
                group.append(item)
                self.merged += 1
                continue
            if group:
                yield group
            group, begun = [item], place
        if group:
            yield group

    def intervals(self, agent: AgentTimeline) -> Iterator[list[Interval]]:
        """Yield the agent's periods of one state; periods that begin too close to each other form one group."""
        return self.thin(agent.stretches, lambda each: each.since)

    def model_calls(self, agent: AgentTimeline) -> Iterator[list[ModelCall]]:
        """Yield the agent's model calls; calls that begin too close to each other form one group."""
        return self.thin(agent.model_calls, lambda each: each.since)

    def tool_calls(self, agent: AgentTimeline) -> Iterator[list[ToolCall]]:
        """Yield the agent's tool calls by start time; calls that begin too close to each other form one group."""
        return self.thin(sorted(agent.tool_calls, key=lambda each: each.since), lambda each: each.since)

    def signs(self, agent: AgentTimeline) -> Iterator[list[Mark]]:
        """Yield the agent's ends and restarts, which have a sign in `SIGNS`; too close ones form one group."""
        return self.thin([mark for mark in agent.marks if SIGNS[mark.kind]], lambda each: each.at)

    def _count(self, agents: Sequence[AgentTimeline]) -> int:
        kinds = (self.intervals, self.model_calls, self.tool_calls, self.signs)
        words = sum(1 for agent in agents for _ in self.thin(agent.progress, lambda each: each.at))
        return words + sum(1 for agent in agents for kind in kinds for _ in kind(agent))


def render_lane(agent: AgentTimeline, drawing: LaneRenderer) -> Html:
    """Render one row of the timeline: the name of *agent*, and its bars and signs on the time axis."""
    grid = [tag("line", x1=f"{x:.2f}%", x2=f"{x:.2f}%", y1=0, y2=TALL, class_="grid") for x, _ in drawing.scale.ticks()]
    shapes = [
        *(_render_interval(group, drawing) for group in drawing.intervals(agent)),
        *(_model_call(group, drawing) for group in drawing.model_calls(agent)),
        *(_tool_call(group, drawing) for group in drawing.tool_calls(agent)),
        *(_progress(agent, drawing)),
        *(_sign(group, drawing) for group in drawing.signs(agent)),
    ]
    label = f"{agent.name}: {agent.state.replace('_', ' ')}"
    drawn = tag("svg", grid, shapes, height=TALL, role="img", aria_label=label)
    return tag("div", agent_name(agent.name, agent.depth), drawn, class_="lane")


def text_anchor(place: float) -> str:
    """Return the SVG `text-anchor` value that keeps text at *place* (in per cent of the width) within the page."""
    if place < 2:
        return "start"
    return "end" if place > 98 else "middle"


def _bar(drawing: LaneRenderer, since: float, until: float, least: float, told: Sequence[str], class_: str) -> Html:
    """Render a bar from *since* to *until*, at least *least* per cent wide, with the lines *told* as tooltip."""
    begin = drawing.scale.position(since)
    wide = max(drawing.scale.position(until) - begin, least)
    return tag("rect", tooltip(*told), x=f"{min(begin, WIDTH - wide):.2f}%", width=f"{wide:.2f}%", class_=class_)


def _render_interval(group: list[Interval], drawing: LaneRenderer) -> Html:
    """Render merged periods as one bar, in the color of the state that lasted longest among them."""
    lasted: defaultdict[str, float] = defaultdict(float)
    for each in group:
        lasted[each.state] += each.until - each.since
    state = max(lasted, key=lambda each: lasted[each])
    shown = max((each for each in group if each.state == state), key=lambda each: each.until - each.since)
    since, until = group[0].since, group[-1].until
    told = (
        f"{state.replace('_', ' ')}{f': {shown.what}' if shown.what else ''}",
        f"{drawing.since(since)}, for {span_text(until - since)}",
        f"start {shown.incarnation}" if shown.incarnation > 1 else "",
        f"{len(group)} changes of state" if len(group) > 1 else "",
    )
    return _bar(drawing, since, until, 0.05, told, f"s-{STATE_CLASSES.get(state, state)}")


def _model_call(group: list[ModelCall], drawing: LaneRenderer) -> Html:
    first, last = group[0], group[-1]
    prompt, read = sum(each.prompt for each in group), sum(each.read for each in group)
    share = f", {100 * read / prompt:.0f} % of them from cache" if prompt else ""
    told = (
        f"turn {first.turn}" if len(group) == 1 else f"{len(group)} model calls, from turn {first.turn} on",
        f"{prompt:,} tokens in{share}, {sum(each.output for each in group):,} out",
        f"{drawing.since(first.since)}, for {span_text(last.until - first.since)}",
    )
    return _bar(drawing, first.since, last.until, 0.15, told, "model")


def _tool_call(group: list[ToolCall], drawing: LaneRenderer) -> Html:
    wrong = [call for call in group if call.is_error]
    told = [_call(call, drawing) for call in (wrong or group)[:LISTED]]
    more = f"{len(group)} calls here" if len(group) > 1 else ""
    until = max(call.until for call in group)
    return _bar(drawing, group[0].since, until, 0.2, (*told, more), "tool wrong" if wrong else "tool")


def _call(call: ToolCall, drawing: LaneRenderer) -> str:
    failed = f" failed: {call.reason or 'no reason given'}" if call.is_error else ""
    return f"{call.name}{failed}, {drawing.since(call.since)}, for {span_text(call.until - call.since)}"


def _progress(agent: AgentTimeline, drawing: LaneRenderer) -> Iterator[Html]:
    for group in drawing.thin(agent.progress, lambda each: each.at):
        told = [f"{each.text} ({drawing.since(each.at)})" for each in group[:LISTED]]
        more = f"{len(group)} summaries here" if len(group) > LISTED else ""
        yield tag(
            "circle", tooltip(*told, more), cx=f"{drawing.scale.position(group[0].at):.2f}%", cy=30, r=3, class_="words"
        )


def _sign(group: list[Mark], drawing: LaneRenderer) -> Html:
    """Render merged starts and ends as the sign of the last one; the tooltip lists the last `LISTED` of them."""
    mark = group[-1]
    place = drawing.scale.position(mark.at)
    told = [_moment(each, drawing) for each in group[-LISTED:]]
    class_ = "mark" if mark.kind in ("done", "started_again") else "mark bad"
    # An end is drawn before its time and a start after it, so that both are visible.
    side = "start" if mark.kind == "started_again" or place < 1 else "end"
    return tag(
        "text", text(SIGNS[mark.kind]), tooltip(*told), x=f"{place:.2f}%", y=TALL - 2, text_anchor=side, class_=class_
    )


def _moment(mark: Mark, drawing: LaneRenderer) -> str:
    again = f", start {mark.incarnation}" if mark.incarnation > 1 else ""
    what = f": {mark.what.removeprefix('again, ')}" if mark.what else ""
    return f"{mark.kind.replace('_', ' ')}{again}, {drawing.since(mark.at)}{what}"
