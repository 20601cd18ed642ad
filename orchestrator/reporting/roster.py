"""The agents of a session in words: the timeline once more, for those who cannot see it, and what came of each."""

from coterie.orchestrator.reporting.facts import AgentLife, SessionFacts
from coterie.orchestrator.reporting.markup import Html, below, cell, line, name, note, number, row, table, tag, text
from coterie.orchestrator.reporting.scale import since_text

RESULT = 2_000
"""Characters of what an agent said in the end that are shown."""

HEAD = ("agent", "state", "from", "to", "last progress", "starts", "turns", "tool calls", "failed")


def roster_table(facts: SessionFacts) -> Html:
    """Every agent, each below who started it."""
    if not facts.agents:
        return note("There are none yet.")
    return table(HEAD, (_row(agent, facts.first) for agent in facts.agents), numbers=4)


def _row(agent: AgentLife, first: float) -> Html:
    since, until = (agent.stretches[0].since, agent.stretches[-1].until) if agent.stretches else (None, None)
    is_bad = agent.state in ("failed", "killed", "interrupted", "stalled")
    return row(
        cell(name(agent.name, agent.depth), _about(agent)),
        cell(tag("span", line(agent.state.replace("_", " ")), class_="bad" if is_bad else None), _faint(agent.why)),
        cell(text("" if since is None else since_text(since, first)), class_="when"),
        cell(text("" if until is None else since_text(until, first)), class_="when"),
        cell(line(agent.progress[-1].text if agent.progress else "")),
        number(agent.incarnations),
        number(len(agent.model_calls)),
        number(len(agent.tool_calls)),
        number(sum(call.is_error for call in agent.tool_calls)),
    )


def _about(agent: AgentLife) -> Html:
    what = ", ".join(filter(None, (agent.kind, agent.model)))
    told = [_faint(f"{what}: {agent.task}" if what and agent.task else what or agent.task)]
    if agent.result:
        cut = agent.result if len(agent.result) <= RESULT else f"{agent.result[:RESULT]} ..."
        told.append(tag("details", tag("summary", text("its last words")), tag("div", text(cut), class_="said")))
    return below(agent.depth, *told)


def _faint(words: str) -> Html | None:
    return tag("div", line(words), class_="faint") if words else None
