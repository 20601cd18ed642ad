"""Prompt cache section of the HTML report: tokens read, written and missed by each model request, for each agent."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs

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
    tooltip,
)
from coterie.orchestrator.report.report_data import BilledRequest, SessionFacts
from coterie.orchestrator.report.time_scale import since_text

DRAWN = 2_000
"""Maximum number of requests shown for all agents together; requests with cache misses are kept first."""
OPEN = 40
"""Maximum number of requests of a session whose request tables are initially expanded; with more, all are collapsed."""
CAUSES = 10
"""Maximum number of cache misses listed with their cause below the chart of an agent."""
HIGH = 100
"""Height of a chart in its SVG coordinates; the largest request of the session fills it."""
_COLUMN = 24
"""Maximum width of the column of one request in a chart, in pixels."""

HEAD = ("request", "when", "purpose", "read", "expected", "missed", "written", "plain", "output", "dollars")


@attrs.frozen
class _Numbered:
    number: int
    """Number of the request among those of its agent, from 1."""
    request: BilledRequest

    @property
    def is_missed(self) -> bool:
        return self.request.line.missed > 0 or self.request.broke is not None


def render_cache(facts: SessionFacts) -> Html:
    """Render the section: legend, and for each agent a chart and table of its requests; a note without requests."""
    if not facts.requests:
        return note("No model calls yet.")
    by_agent = _by_agent(facts.requests)
    kept = _select_shown(by_agent)
    billed = [request.line for request in facts.requests]
    highest = max(max(each.usage.prompt, each.expected_read or 0) for each in billed) or 1
    is_open = len(facts.requests) <= OPEN
    charts = [
        _Chart(agent, depth, by_agent[agent], kept[agent], highest).render(facts.first, is_open=is_open)
        for agent, depth in _depths(facts).items()
        if agent in by_agent
    ]
    parts = [_legend(), note(f"The full height of a chart is a prompt of {highest:,} tokens."), *charts]
    shown = sum(map(len, kept.values()))
    if shown < len(facts.requests):
        words = f"{shown:,} of {len(facts.requests):,} requests are shown, those with cache misses first"
        parts.append(note(f"{words}. --json has all of them."))
    return join(parts)


def _depths(facts: SessionFacts) -> dict[str, int]:
    """Return agents in page order with their depth: those of the timeline, then others from the ledger (paid calls)."""
    known = {agent.name: agent.depth for agent in facts.agents}
    return known | {each.name: each.depth for each in facts.costs.agents if each.name not in known}


def _by_agent(requests: Sequence[BilledRequest]) -> dict[str, list[_Numbered]]:
    found: defaultdict[str, list[_Numbered]] = defaultdict(list)
    for request in requests:
        mine = found[request.line.agent]
        mine.append(_Numbered(len(mine) + 1, request))
    return dict(found)


def _select_shown(by_agent: dict[str, list[_Numbered]]) -> dict[str, list[_Numbered]]:
    """Return each agent's requests to show: all, or if over `DRAWN` in total, an equal share, cache misses first."""
    share = DRAWN // len(by_agent)
    if sum(map(len, by_agent.values())) <= DRAWN:
        return by_agent
    return {name: _sample(requests, max(share, 1)) for name, requests in by_agent.items()}


def _sample(requests: list[_Numbered], limit: int) -> list[_Numbered]:
    if len(requests) <= limit:
        return requests
    missed = [each for each in requests if each.is_missed][:limit]
    others = [each for each in requests if not each.is_missed]
    room = limit - len(missed)
    even = [others[at * len(others) // room] for at in range(room)] if others else []
    return sorted([*missed, *even], key=lambda each: each.number)


def _legend() -> Html:
    parts = (
        ("read", "read from the cache"),
        ("written", "written to the cache"),
        ("plain", "uncached input"),
        ("missed", "expected in the cache, but not read"),
    )
    return tag(
        "ul",
        [
            tag("li", tag("svg", tag("rect", width=14, height=14, class_=name), width=14, height=14), text(words))
            for name, words in parts
        ],
        class_="legend",
    )


@attrs.frozen
class _Chart:
    """Chart and table of the model requests of one agent."""

    agent: str
    depth: int
    requests: list[_Numbered]
    shown: list[_Numbered]
    highest: int
    """Largest number of prompt or expected cache tokens in a request of any agent; it fills the height of a chart."""

    def render(self, first: float, *, is_open: bool) -> Html:
        drawn = tag(
            "svg",
            [_column(each, at, self.highest) for at, each in enumerate(self.shown)],
            viewBox=f"0 0 {len(self.shown)} {HIGH}",
            preserveAspectRatio="none",
            width=len(self.shown) * _COLUMN,
            class_="columns",
            role="img",
            aria_label=f"{len(self.shown)} requests of {self.agent}",
        )
        numbers = table(HEAD, (_row(each, first) for each in self.shown), numbers=7)
        details = tag("details", tag("summary", text("numbers")), numbers, open=is_open)
        share = indented(self.depth, tag("span", text(self._share()), class_="faint"))
        caption = tag("div", agent_name(self.agent, self.depth), share, class_="caption")
        return tag("div", caption, tag("div", drawn, _causes(self.shown), details), class_="requests")

    def _share(self) -> str:
        read = sum(each.request.line.usage.read for each in self.requests)
        prompt = sum(each.request.line.usage.prompt for each in self.requests)
        return f"{100 * read / prompt:.0f} % from the cache" if prompt else "no requests"


def _column(each: _Numbered, at: int, highest: int) -> Html:
    billed = each.request.line
    written = billed.usage.write_5m + billed.usage.write_1h
    parts: list[Html] = []
    top = float(HIGH)
    for class_, tokens in (("read", billed.usage.read), ("written", written), ("plain", billed.usage.input)):
        tall = HIGH * tokens / highest
        top -= tall
        if tokens:
            parts.append(tag("rect", x=at + 0.1, y=top, width=0.8, height=tall, class_=class_))
    if billed.missed:
        tall = HIGH * billed.missed / highest
        above = HIGH - HIGH * (billed.expected_read or 0) / highest
        parts.append(tag("rect", x=at + 0.1, y=above, width=0.8, height=tall, class_="missed"))
    whole = tag("rect", x=at, y=0, width=1, height=HIGH, class_="whole")
    return tag("g", tooltip(*_tooltip_lines(each)), *parts, whole)


def _tooltip_lines(each: _Numbered) -> Iterator[str]:
    billed, broke = each.request.line, each.request.broke
    yield f"request {each.number}, {billed.purpose}, ${billed.cost_usd:.6f}"
    yield f"{billed.usage.read:,} read, {billed.cached - billed.usage.read:,} written, {billed.usage.input:,} plain"
    if billed.expected_read is not None:
        yield f"{billed.expected_read:,} expected from the cache"
    if broke is not None:
        yield f"cache miss, cause {broke.cause}: {broke.detail}"


def _causes(shown: list[_Numbered]) -> Html | None:
    """Render the list below an agent's chart: at most `CAUSES` cache misses with causes; None if there are none."""
    told = [tag("li", line(f"request {each.number}: {_cause(each)}")) for each in shown if each.is_missed]
    more = tag("li", text(f"and {len(told) - CAUSES:,} more")) if len(told) > CAUSES else None
    return tag("ul", told[:CAUSES], more, class_="causes") if told else None


def _cause(each: _Numbered) -> str:
    billed, broke = each.request.line, each.request.broke
    if broke is None:
        return f"{billed.missed:,} of {billed.expected_read or 0:,} tokens missed; cause unknown"
    sizes = f"{broke.read_now:,} tokens read, {broke.read_before:,} before"
    return f"cache miss, cause {broke.cause}: {broke.detail}; {sizes}"


def _row(each: _Numbered, first: float) -> Html:
    billed = each.request.line
    bound = " (at most)" if billed.is_estimated else ""
    return row(
        cell(text(str(each.number))),
        cell(text(since_text(billed.at, first)), class_="when"),
        cell(line(billed.purpose)),
        number(billed.usage.read),
        number("" if billed.expected_read is None else f"{billed.expected_read:,}"),
        number(billed.missed),
        number(billed.cached - billed.usage.read),
        number(billed.usage.input),
        number(billed.usage.output),
        number(f"{billed.cost_usd:.6f}{bound}"),
        class_="bad" if each.is_missed else None,
    )
