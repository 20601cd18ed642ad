"""Tables of the HTML report: agents, approvals, notable events, unreadable files."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from coterie.orchestrator.report.html import (
    Html,
    agent_name,
    cell,
    indented,
    join,
    line,
    note,
    number,
    row,
    table,
    tag,
    text,
)
from coterie.orchestrator.report.report_data import (
    AgentTimeline,
    ApprovalAnswer,
    ApprovalSummary,
    NotableEvent,
    SessionFacts,
    UnreadableFile,
)
from coterie.orchestrator.report.time_scale import since_text

SHOWN = 200
"""Maximum length of a list, such as approvals or events of a topic. Of a longer list both ends are shown, half each."""

Item = TypeVar("Item")


def render_approvals(facts: SessionFacts) -> Html:
    """Render a table of the approval requests with their answers; a note if there was no request."""
    if not facts.approvals:
        return note("No approval was requested.")
    head = ("when", "agent", "what", "approver", "answers")
    shown = _ends(facts.approvals)
    return join((table(head, (_approval(each, facts.first) for each in shown)), _more(facts.approvals, shown)))


def _approval(each: ApprovalSummary, first: float) -> Html:
    again = f", start {each.incarnation}" if each.incarnation > 1 else ""
    answers = [tag("div", join(_answer(answer, first))) for answer in _ends(each.answers)]
    if each.is_open:
        answers.append(tag("div", tag("b", text("open"))))
    return row(
        cell(text("unknown" if each.at is None else since_text(each.at, first)), class_="when"),
        cell(line(f"{each.agent}{again}")),
        cell(tag("b", line(each.what)), text(" "), line(each.subject), tag("div", line(each.id), class_="faint")),
        cell(line(each.by)),
        cell(answers),
    )


def _answer(answer: ApprovalAnswer, first: float) -> Iterator[Html]:
    is_void = answer.verdict == "refused"
    is_bad = is_void or answer.verdict == "rejected"
    yield tag("b", text("ignored" if is_void else answer.verdict), class_="bad" if is_bad else None)
    whose = f"answer by {answer.by}" if is_void else f"by {answer.by}"
    yield text(" ")
    yield line(f"{whose}, {since_text(answer.at, first)}{': ' if answer.text else ''}{answer.text}")


def render_notables(facts: SessionFacts) -> Html:
    """Render the table of notable events, with a form to filter it by topic and text; a note without events."""
    if not facts.notables:
        return note("No errors, and no layer took action.")
    by_topic: defaultdict[str, list[NotableEvent]] = defaultdict(list)
    for each in facts.notables:
        by_topic[each.topic].append(each)
    shown = sorted((each for some in by_topic.values() for each in _ends(some)), key=lambda each: each.at)
    rows = (_notable(each, facts.first) for each in shown)
    listed = table(("when", "agent", "about", "what"), rows, class_="notables")
    return join((_filter(by_topic), listed, _more(facts.notables, shown)))


def _ends(found: Sequence[Item]) -> Sequence[Item]:
    """Return all items, or if there are more than `SHOWN`, the first `SHOWN // 2` and the last `SHOWN // 2`."""
    half = SHOWN // 2
    return found if len(found) <= SHOWN else [*found[:half], *found[-half:]]


def _more(found: Sequence[Item], shown: Sequence[Item]) -> Html | None:
    left = len(found) - len(shown)
    return note(f"{left:,} more are not shown; --json has all of them.") if left else None


def _filter(by_topic: Mapping[str, Sequence[NotableEvent]]) -> Html:
    """Render the filter form of the notable events; the page's script makes it visible, as it needs the script."""
    boxes = [
        tag("label", tag("input", type="checkbox", checked=True, value=topic), text(f" {topic} ({len(found):,})"))
        for topic, found in sorted(by_topic.items())
    ]
    words = tag("input", type="search", placeholder="agent or text", aria_label="agent or text")
    return tag("form", boxes, words, id="filter", hidden=True)


def _notable(each: NotableEvent, first: float) -> Html:
    return row(
        cell(text(since_text(each.at, first) if each.at else ""), class_="when"),
        cell(line(each.agent)),
        cell(text(each.topic)),
        cell(line(each.text)),
        data_topic=each.topic,
    )


def render_unreadable_files(found: Sequence[UnreadableFile]) -> Html | None:
    """Render a warning that lists the files that could not be read; None if all files were read."""
    if not found:
        return None
    shown = _ends(found)
    places = [tag("li", tag("code", line(each.where)), line(f": {each.reason}")) for each in shown]
    words = tag("p", tag("b", text("These files could not be read, so their content is missing:")))
    return tag("aside", words, tag("ul", places), _more(found, shown), class_="warning")


RESULT = 2_000
"""Maximum characters of an agent's last reply in the table of agents."""

HEAD = ("agent", "state", "from", "to", "last progress", "starts", "turns", "tool calls", "failed")


def render_agents(facts: SessionFacts) -> Html:
    """Render the table of agents, parents before children, with state, times and counts; a note without agents."""
    if not facts.agents:
        return note("No agents yet.")
    return table(HEAD, (_row(agent, facts.first) for agent in facts.agents), numbers=4)


def _row(agent: AgentTimeline, first: float) -> Html:
    since, until = (agent.stretches[0].since, agent.stretches[-1].until) if agent.stretches else (None, None)
    is_bad = agent.state in ("failed", "killed", "interrupted", "stalled")
    return row(
        cell(agent_name(agent.name, agent.depth), _about(agent)),
        cell(tag("span", line(agent.state.replace("_", " ")), class_="bad" if is_bad else None), _faint(agent.why)),
        cell(text("" if since is None else since_text(since, first)), class_="when"),
        cell(text("" if until is None else since_text(until, first)), class_="when"),
        cell(line(agent.progress[-1].text if agent.progress else "")),
        number(agent.incarnations),
        number(len(agent.model_calls)),
        number(len(agent.tool_calls)),
        number(sum(call.is_error for call in agent.tool_calls)),
    )


def _about(agent: AgentTimeline) -> Html:
    what = ", ".join(filter(None, (agent.kind, agent.model)))
    told = [_faint(f"{what}: {agent.task}" if what and agent.task else what or agent.task)]
    if agent.result:
        cut = agent.result if len(agent.result) <= RESULT else f"{agent.result[:RESULT]} ..."
        told.append(tag("details", tag("summary", text("last reply")), tag("div", text(cut), class_="said")))
    return indented(agent.depth, *told)


def _faint(words: str) -> Html | None:
    return tag("div", line(words), class_="faint") if words else None
