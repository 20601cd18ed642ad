"""Prompt cache section of the report: reads, writes and misses of each request by agent."""

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
"""Requests that are drawn of all agents together; those that missed the cache come first."""
OPEN = 40
"""Up to so many requests in all their numbers are in view, and not only on demand."""
CAUSES = 10
"""Misses of one agent that are told in words; all that are drawn are among the numbers."""
HIGH = 100
"""Units of a chart from its foot to its top."""
_COLUMN = 24
"""Pixels that a request has at most."""

HEAD = ("request", "when", "purpose", "read", "expected", "missed", "written", "plain", "output", "dollars")


@attrs.frozen
class _Numbered:
    number: int
    """Among the requests of its agent, from 1."""
    request: BilledRequest

    @property
    def is_missed(self) -> bool:
        return self.request.line.missed > 0 or self.request.broke is not None


def render_cache(facts: SessionFacts) -> Html:
    """A chart for each agent, and its requests as numbers."""
    if not facts.requests:
        return note("The model was not asked yet.")
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
    parts = [_legend(), note(f"A column as high as its chart is a prompt of {highest:,} tokens."), *charts]
    shown = sum(map(len, kept.values()))
    if shown < len(facts.requests):
        words = f"{len(facts.requests):,} requests; {shown:,} are shown, with those that missed the cache before others"
        parts.append(note(f"{words}. --json has every one."))
    return join(parts)


def _depths(facts: SessionFacts) -> dict[str, int]:
    """How deep each agent stands: as in the timeline, and behind them those whom only the ledger knows."""
    known = {agent.name: agent.depth for agent in facts.agents}
    return known | {each.name: each.depth for each in facts.costs.agents if each.name not in known}


def _by_agent(requests: Sequence[BilledRequest]) -> dict[str, list[_Numbered]]:
    found: defaultdict[str, list[_Numbered]] = defaultdict(list)
    for request in requests:
        mine = found[request.line.agent]
        mine.append(_Numbered(len(mine) + 1, request))
    return dict(found)


def _select_shown(by_agent: dict[str, list[_Numbered]]) -> dict[str, list[_Numbered]]:
    """What is shown of each agent: all, or of very many an equal share, misses first and then as evenly as can be."""
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
        ("written", "written to it"),
        ("plain", "neither: plain input"),
        ("missed", "should have been read, and was not"),
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
    """The requests of one agent."""

    agent: str
    depth: int
    requests: list[_Numbered]
    shown: list[_Numbered]
    highest: int
    """Tokens of the highest column of all charts."""

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
        details = tag("details", tag("summary", text("in numbers")), numbers, open=is_open)
        share = indented(self.depth, tag("span", text(self._share()), class_="faint"))
        caption = tag("div", agent_name(self.agent, self.depth), share, class_="caption")
        return tag("div", caption, tag("div", drawn, _causes(self.shown), details), class_="requests")

    def _share(self) -> str:
        read = sum(each.request.line.usage.read for each in self.requests)
        prompt = sum(each.request.line.usage.prompt for each in self.requests)
        return f"{100 * read / prompt:.0f} % from the cache" if prompt else "nothing asked"


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
        yield f"{billed.expected_read:,} were expected to be read"
    if broke is not None:
        yield f"missed by {broke.cause}: {broke.detail}"


def _causes(shown: list[_Numbered]) -> Html | None:
    """The misses in words, below the chart."""
    told = [tag("li", line(f"request {each.number}: {_cause(each)}")) for each in shown if each.is_missed]
    more = tag("li", text(f"and {len(told) - CAUSES:,} more")) if len(told) > CAUSES else None
    return tag("ul", told[:CAUSES], more, class_="causes") if told else None


def _cause(each: _Numbered) -> str:
    billed, broke = each.request.line, each.request.broke
    if broke is None:
        return f"{billed.missed:,} of {billed.expected_read or 0:,} tokens were missed; nobody said why"
    sizes = f"{broke.read_now:,} tokens were read, {broke.read_before:,} before"
    return f"missed by {broke.cause}: {broke.detail}; {sizes}"


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
