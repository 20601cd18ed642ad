"""Cost report of a session, built from its ledger (a line per model call) and its events."""

from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from coterie.agents.events.layer_events import BreakerTripped, CacheBroke
from coterie.orchestrator.events.event_sources import open_sources
from coterie.orchestrator.events.session_reader import SessionReader
from coterie.orchestrator.gateway.cache_savings import CostAlternatives, cost_alternatives
from coterie.orchestrator.gateway.cost_totals import (
    TURN,
    CostRow,
    CostTotals,
    Grouping,
    group_costs,
    per_100_turns,
    sum_costs,
)
from coterie.orchestrator.gateway.ledger import LEDGER, DamagedEntry, read_ledger

CacheEvent = TypeVar("CacheEvent", CacheBroke, BreakerTripped)


@attrs.frozen
class ReportedEvent(Generic[CacheEvent]):
    """Event in a cost report: a cache miss of an agent, or the end of its summaries by a model after failures."""

    at: float
    agent: str
    event: CacheEvent

    def to_mapping(self) -> dict[str, Any]:
        """Return the event as a JSON object with time, agent and the fields of the event."""
        facts = {name: getattr(self.event, name) for name in self.event.__struct_fields__}
        return {"at": self.at, "agent": self.agent, **facts}


@attrs.frozen(kw_only=True)
class CostReport:
    """Costs of a session so far, with the unexpected cache misses."""

    by: Grouping
    rows: tuple[CostRow, ...]
    total: CostTotals
    alternatives: CostAlternatives
    turns: int
    """Number of complete replies in the agents' main loops (calls of purpose `turn`)."""
    per_100_turns: dict[str, float]
    """Number of complete calls per 100 turns for each purpose except `turn`, by purpose."""
    breaks: tuple[ReportedEvent[CacheBroke], ...]
    """Cache misses: calls of an agent that read unexpectedly few tokens from the prompt cache."""
    trips: tuple[ReportedEvent[BreakerTripped], ...]
    """Events that several summaries by the model failed in a row; from then on, a compaction asks no model for one."""
    damaged: tuple[DamagedEntry, ...]
    """Ledger lines that cannot be read. Their costs are not in the report."""

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as a JSON object. Dollars are strings with the exact decimal number."""
        return {
            "by": self.by,
            "rows": [row_mapping(row, self.by) for row in self.rows],
            "total": spending_mapping(self.total),
            **{f"{name}_usd": format(cost, "f") for name, cost in attrs.asdict(self.alternatives).items()},
            "turns": self.turns,
            "per_100_turns": self.per_100_turns,
            "breaks": [each.to_mapping() for each in self.breaks],
            "breaker_trips": [each.to_mapping() for each in self.trips],
            "damaged": [attrs.asdict(damage) for damage in self.damaged],
        }


def build_cost_report(directory: Path, by: Grouping = "agent") -> CostReport:
    """Build the cost report of the session in *directory*, with a row for each value of *by*.

    Blocks on the disk. Raises `OSError`, also if the session has no ledger.
    """
    reading = read_ledger(directory / LEDGER)
    breaks: list[ReportedEvent[CacheBroke]] = []
    trips: list[ReportedEvent[BreakerTripped]] = []
    for path in SessionReader(directory).agent_directories():
        # The transcript holds neither of these events and is much longer, so it is not read.
        log, _ = open_sources(path, session=directory.name)
        for arrival in log.read_all():
            match arrival.event.event:
                case CacheBroke() as event:
                    breaks.append(ReportedEvent(arrival.event.at, arrival.event.agent, event))
                case BreakerTripped() as event:
                    trips.append(ReportedEvent(arrival.event.at, arrival.event.agent, event))
    return CostReport(
        by=by,
        rows=tuple(group_costs(reading.lines, by)),
        total=sum_costs(reading.lines),
        alternatives=cost_alternatives(reading.lines),
        turns=sum(line.purpose == TURN and not line.is_estimated for line in reading.lines),
        per_100_turns=per_100_turns(reading.lines),
        breaks=tuple(sorted(breaks, key=attrgetter("at"))),
        trips=tuple(sorted(trips, key=attrgetter("at"))),
        damaged=reading.damaged,
    )


def row_mapping(row: CostRow, by: Grouping) -> dict[str, Any]:
    """Return *row* as a JSON object; if *by* is `agent`, with the agent's parent, depth and subtree cost."""
    place = {"parent": row.parent, "depth": row.depth, "subtree_cost_usd": format(row.subtree, "f")}
    return {"name": row.name, **(place if by == "agent" else {}), **spending_mapping(row.spending)}


def spending_mapping(spending: CostTotals) -> dict[str, Any]:
    """Return the totals *spending* as a JSON object."""
    return {
        "requests": spending.requests,
        "usage": attrs.asdict(spending.usage),
        "cached_share": spending.cached_share,
        "missed": spending.missed,
        "cost_usd": format(spending.cost, "f"),
        "estimated": spending.estimated,
        "estimated_cost_usd": format(spending.estimated_cost, "f"),
    }
