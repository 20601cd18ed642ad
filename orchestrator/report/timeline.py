"""Timeline section of the HTML report: legend, time axis, and a lane (row with bars over time) for each agent."""

from collections.abc import Iterator

from coterie.orchestrator.report.html import Html, join, note, tag, text, tooltip
from coterie.orchestrator.report.report_data import AgentTimeline, SessionFacts
from coterie.orchestrator.report.time_scale import TimeScale, span_text
from coterie.orchestrator.report.timeline_lane import SIGNS, STATE_CLASSES, LaneRenderer, render_lane, text_anchor

STATES = {
    "running": "is running",
    "waiting": "waits for other agents or an answer",
    "idle": "waits for mail",
    "plan_pending": "waits for approval of its plan",
    "stalled": "has made no progress for too long",
    "starting": "is starting or stopping",
}
"""Description of each agent state in the legend of the timeline."""


def render_timeline(facts: SessionFacts) -> Html:
    """Render the section: legend, time axis and a lane for each agent; a note if no agent has started yet."""
    if not facts.agents:
        return note("No agent has started yet.")
    busy = [(stretch.since, stretch.until) for agent in facts.agents for stretch in agent.stretches]
    scale = TimeScale.of(facts.first, facts.last, busy)
    drawing = LaneRenderer.of(scale, facts.agents)
    lanes = [render_lane(agent, drawing) for agent in facts.agents]
    return join((_legend(facts.agents), tag("div", _axis(scale), lanes, class_="lanes"), _merged_note(drawing)))


def _legend(agents: tuple[AgentTimeline, ...]) -> Html:
    """Render the legend, with only those states, calls and signs that occur in *agents*."""
    states = {STATE_CLASSES.get(stretch.state, stretch.state) for agent in agents for stretch in agent.stretches}
    found = [
        tag("li", _swatch("rect", f"s-{state}"), text(f"{state.replace('_', ' ')}: {words}"))
        for state, words in STATES.items()
        if state in states
    ]
    return tag("ul", found, _moments(agents), class_="legend")


def _moments(agents: tuple[AgentTimeline, ...]) -> Iterator[Html]:
    calls = [call for agent in agents for call in agent.tool_calls]
    if any(agent.model_calls for agent in agents):
        yield tag("li", _swatch("rect", "model"), text("model call"))
    if not all(call.is_error for call in calls):
        yield tag("li", _swatch("rect", "tool"), text("tool call"))
    if any(call.is_error for call in calls):
        yield tag("li", _swatch("rect", "tool wrong"), text("tool call that failed"))
    if any(agent.progress for agent in agents):
        yield tag("li", tag("b", text("●"), class_="words"), text("progress summary"))
    marks = {SIGNS[mark.kind] for agent in agents for mark in agent.marks}
    signs = (
        ("↻", "started again", None),
        ("■", "done", None),
        ("✕", "failed or killed", "bad"),
        ("?", "interrupted", "bad"),
    )
    for sign, words, class_ in signs:
        if sign in marks:
            yield tag("li", tag("b", text(sign), class_=class_), text(words))


def _swatch(shape: str, class_: str) -> Html:
    drawn = tag(shape, x=0, width=16, class_=class_)
    return tag("svg", drawn, width=16, height=26, viewBox="0 5 16 26", aria_hidden="true")


def _axis(scale: TimeScale) -> Html:
    labels = [
        tag("text", text(label), x=f"{place:.2f}%", y=12, text_anchor=text_anchor(place))
        for place, label in scale.ticks()
    ]
    drawn = tag(
        "svg", labels, _cuts(scale), height=18, class_="axis", role="img", aria_label="time since the first event"
    )
    return tag("div", tag("span", text("time"), class_="name faint"), drawn, class_="lane axis-lane")


def _cuts(scale: TimeScale) -> Iterator[Html]:
    """Yield a `//` sign for each shortened period without a running agent, with its duration as tooltip."""
    for at in scale.gaps:
        gone = span_text(scale.moments[at + 1] - scale.moments[at])
        middle = (scale.places[at] + scale.places[at + 1]) / 2
        words = tooltip(f"{gone} without a running agent, shortened")
        yield tag("text", text("//"), words, x=f"{middle:.2f}%", y=12, class_="cut")


def _merged_note(drawing: LaneRenderer) -> Html | None:
    """Render a note with the number of items that were merged with others in one shape; None if none was merged."""
    if not drawing.merged:
        return None
    count = f"{drawing.merged:,} states, calls or summaries" if drawing.merged > 1 else "one state, call or summary"
    return note(f"Merged because they are too close: {count}. The tooltip of a shape lists what it contains.")
