"""Cost section of the HTML report: costs by agent, purpose and model; estimates without cache or without sharing it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

from coterie.orchestrator.gateway.cost_totals import TURN, CostRow, CostTotals
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
from coterie.orchestrator.report.report_data import BilledRequest, ReportCosts, SessionFacts

_COLUMNS = ("calls", "read", "written", "plain", "output", "cached", "missed", "dollars")


def render_costs(facts: SessionFacts) -> Html:
    """Render the cost tables, or a note if no model was called; the totals equal those of `coterie costs`."""
    if not facts.requests:
        return note("No costs.")
    costs = facts.costs
    parts = [_agents(costs, facts.requests), _alternatives(costs)]
    for by, rows in (("purpose", costs.purposes), ("model", costs.models)):
        parts.append(tag("h3", text(f"By {by}")))
        parts.append(_group(by, rows, costs.total))
    if costs.total.estimated:
        broke = f"{costs.total.estimated:,} requests were incomplete"
        bound = f"${costs.total.estimated_cost:.6f} of the total is an upper bound"
        parts.append(note(f"{broke}: {bound}."))
    return join(parts)


def _agents(costs: ReportCosts, requests: Sequence[BilledRequest]) -> Html:
    purposes: defaultdict[str, defaultdict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for request in requests:
        if request.line.purpose != TURN:
            purposes[request.line.agent][request.line.purpose] += request.line.cost_usd
    rows = [
        row(
            cell(agent_name(each.name, each.depth), _helpers(each.depth, purposes[each.name])),
            cell(line(each.parent or "")),
            *_cells(each.spending),
            number(f"{each.subtree:.6f}"),
        )
        for each in costs.agents
    ]
    total = row(cell(text("total")), cell(), *_cells(costs.total), number(""), class_="total")
    return table(("agent", "started by", *_COLUMNS, "with subtree"), [*rows, total], numbers=9)


def _helpers(depth: int, purposes: Mapping[str, Decimal]) -> Html | None:
    """Render the costs of an agent's calls outside its main loop, by purpose, such as summaries; None without any."""
    if not purposes:
        return None
    told = ", ".join(f"{purpose} ${cost:.6f}" for purpose, cost in purposes.items())
    return indented(depth, tag("span", line(f"of this {told}"), class_="faint"))


def _group(by: str, rows: Sequence[CostRow], total: CostTotals) -> Html:
    found = [row(cell(line(each.name)), *_cells(each.spending)) for each in rows]
    found.append(row(cell(text("total")), *_cells(total), class_="total"))
    return table((by, *_COLUMNS), found, numbers=8)


def _cells(spent: CostTotals) -> list[Html]:
    used = spent.usage
    counts = (spent.requests, used.read, used.write_5m + used.write_1h, used.input, used.output)
    shares = (f"{100 * spent.cached_share:.0f} %", spent.missed, f"{spent.cost:.6f}")
    return [number(value) for value in (*counts, *shares)]


def _alternatives(costs: ReportCosts) -> Html:
    other = costs.alternatives
    figures = (
        ("with perfect sharing", other.perfect_sharing, ""),
        ("actual cost", costs.total.cost, "paid"),
        ("without sharing", other.without_sharing, ""),
        ("without any cache", other.without_cache, ""),
    )
    highest = max(cost for _, cost, _ in figures) or Decimal(1)
    bars = [
        tag(
            "div",
            tag("span", text(words), class_="name"),
            tag("svg", tag("rect", width=f"{100 * cost / highest:.2f}%", height=14), height=14, aria_hidden="true"),
            tag("span", text(f"${cost:.6f}"), class_="number"),
            class_=f"figure {class_}".rstrip(),
        )
        for words, cost, class_ in figures
    ]
    return join((tag("h3", text("Effect of the cache and of sharing it")), tag("div", bars, class_="figures")))
