"""Sequence diagram of the HTML report: a column for each agent, an arrow in a row of its own for each message.

Starts of agents are shown as arrows too, because most agents get their work when they are started.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import attrs

from coterie.orchestrator.report.html import TIP, Html, join, line, note, tag, text, tooltip, truncate
from coterie.orchestrator.report.mail_deliveries import GIST
from coterie.orchestrator.report.report_data import AgentTimeline, MailItem, MailItemState, Mark, SessionFacts
from coterie.orchestrator.report.time_scale import since_text

COLUMNS = 24
"""Maximum number of columns. If there are more participants, those in the fewest rows share the last column."""
FIRST, LAST = 400, 200
"""Number of first rows and number of last rows that are shown if the diagram has more rows than both together."""
FEW, SOME = 3, 5
"""Maximum numbers of columns whose names fit side by side: FEW on a narrow page, SOME on a wide page."""

_MIDDLE = 13
"""Vertical position of an arrow in its row, in pixels from the top."""


@attrs.frozen(kw_only=True)
class _Step:
    """Row of the diagram: a message from one participant to another, or a start or restart of an agent."""

    at: float
    sender: str
    recipient: str
    look: MailItemState | Literal["start"]
    way: str
    kind: str = ""
    text: str
    fate: str = ""


def render_sequence(facts: SessionFacts) -> Html:
    """Render the diagram: names of participants, and a row for each message and agent start; a note if it is empty."""
    silent = None if facts.letters else note("No messages.")
    steps = sorted(
        [*_starts(facts.agents), *(_sent(each, facts.first) for each in facts.letters)], key=lambda each: each.at
    )
    if not steps:
        return note("No messages, and no agent was started by another.")
    places, shared = _columns(steps, facts.agents)
    rows = [_row(step, places, facts.first) for step in steps[:FIRST]]
    rest = steps[FIRST:]
    if len(rest) > LAST:
        rows.append(note(f"{len(rest) - LAST:,} rows are not shown; --json has all of them."))
    rows += [_row(step, places, facts.first) for step in rest[-LAST:]]
    count = max(places.values()) + 1
    names = _names(places, count, shared)
    return join((silent, _arrow_heads(), tag("div", names, rows, class_=f"sequence c{count}")))


def _sent(letter: MailItem, first: float) -> _Step:
    if letter.state == "dead":
        fate = f"not delivered: {letter.reason}"
    else:
        fate = "pending" if letter.delivered is None else f"delivered {since_text(letter.delivered, first)}"
    return _Step(
        at=letter.at,
        sender=letter.sender,
        recipient=letter.recipient,
        look=letter.state,
        way=f"{letter.sender} → {letter.recipient}",
        kind="" if letter.kind == "message" else letter.kind.replace("_", " "),
        text=letter.gist,
        fate=fate,
    )


def _starts(agents: Sequence[AgentTimeline]) -> Iterator[_Step]:
    for agent in agents:
        for mark in agent.marks:
            if mark.kind == "started" and agent.parent is not None:
                yield _start(agent, mark, agent.parent, f"{agent.parent} starts {agent.name}", agent.task)
            elif mark.kind == "started_again":
                yield _start(
                    agent, mark, agent.name, f"{agent.name} is started again", mark.what.removeprefix("again, ")
                )


def _start(agent: AgentTimeline, mark: Mark, sender: str, way: str, words: str) -> _Step:
    return _Step(at=mark.at, sender=sender, recipient=agent.name, look="start", way=way, text=words)


def _columns(steps: Sequence[_Step], agents: Sequence[AgentTimeline]) -> tuple[Mapping[str, int], int]:
    """Return the column of each participant, and the number of those that share the last column (0 if all fit)."""
    busy = Counter(name for step in steps for name in (step.sender, step.recipient))
    known = [agent.name for agent in agents if agent.name in busy]
    ordered = list(dict.fromkeys([*(name for name in busy if name not in set(known)), *known]))
    if len(ordered) <= COLUMNS:
        return {name: at for at, name in enumerate(ordered)}, 0
    own = {name for name, _ in busy.most_common(COLUMNS - 1)}
    kept = [name for name in ordered if name in own]
    others = [name for name in ordered if name not in own]
    return {**{name: at for at, name in enumerate(kept)}, **dict.fromkeys(others, COLUMNS - 1)}, len(others)


def _names(places: Mapping[str, int], count: int, shared: int) -> Html:
    shown: dict[int, str] = {at: name for name, at in places.items()}
    if shared:
        shown[count - 1] = f"{shared} others"
    names = [tag("span", line(shown[at]), title=truncate(shown[at], TIP)) for at in range(count)]
    class_ = "names few" if count <= FEW else "names some" if count <= SOME else "names many"
    return tag("div", tag("span"), tag("div", names, class_=class_), class_="letter letter-head")


def _row(step: _Step, places: Mapping[str, int], first: float) -> Html:
    arrow = tag("svg", _arrow(step, places), height=26, role="img", aria_label=step.way)
    return tag(
        "div",
        tag("span", text(since_text(step.at, first)), class_="when"),
        tag("div", arrow, class_="lifelines"),
        tag("div", join(_step_text(step)), class_="gist"),
        class_=f"letter {step.look}",
    )


def _arrow(step: _Step, places: Mapping[str, int]) -> list[Html]:
    count = max(places.values()) + 1
    begin, end = ((places[name] + 0.5) * 100 / count for name in (step.sender, step.recipient))
    shown = tooltip(step.way, step.text, step.fate)
    dot = tag("circle", cx=f"{begin:.2f}%", cy=_MIDDLE, r=3, class_="dot")
    if begin == end:
        return [tag("circle", shown, cx=f"{begin:.2f}%", cy=_MIDDLE, r=6, class_="arrow"), dot]
    head = {"dead": "url(#dead)", "start": "url(#start)"}.get(step.look, "url(#head)")
    ends: dict[str, str] = {"x1": f"{begin:.2f}%", "x2": f"{end:.2f}%", "marker_end": head}
    return [tag("line", shown, y1=_MIDDLE, y2=_MIDDLE, class_="arrow", **ends), dot]


def _step_text(step: _Step) -> Iterator[Html]:
    yield tag("b", line(step.way))
    if step.kind:
        yield tag("span", line(step.kind), class_="kind")
    yield tag("span", line(step.text, GIST))
    yield text(" ")
    yield tag("span", line(step.fate), class_="fate")


def _arrow_heads() -> Html:
    """Render the SVG definitions of the arrow heads, to which the arrows of all rows refer."""
    heads = (("head", "M0 0L8 4L0 8z"), ("start", "M0 0L8 4L0 8z"), ("dead", "M1 1L7 7M7 1L1 7"))
    drawn = [
        tag("marker", tag("path", d=path), id=name, markerWidth=8, markerHeight=8, refX=7, refY=4, orient="auto")
        for name, path in heads
    ]
    return tag("svg", tag("defs", drawn), width=0, height=0, class_="heads", aria_hidden="true")
