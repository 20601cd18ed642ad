"""Cost totals of a session, grouped by agent, purpose or model."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Literal

import attrs

from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.ledger import LedgerEntry

Grouping = Literal["agent", "purpose", "model"]
TURN = "turn"
"""Purpose of the model calls of an agent's main loop; other purposes are helper calls, such as `compaction`."""


@attrs.frozen(kw_only=True)
class CostTotals:
    """Sums over a set of model calls; two objects can be added."""

    requests: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Exact dollars; for interrupted calls an upper bound is included."""
    estimated: int = 0
    """Number of interrupted calls, whose exact usage is unknown."""
    estimated_cost: Decimal = Decimal(0)
    """Dollars of the interrupted calls; an upper bound."""
    missed: int = 0
    """Number of tokens that were expected in the prompt cache but were not read from it."""

    @property
    def cached_share(self) -> float:
        """Fraction of all input tokens that were read from the prompt cache, from 0 to 1."""
        return self.usage.read / self.usage.prompt if self.usage.prompt else 0.0

    def __add__(self, other: "CostTotals") -> "CostTotals":
        return CostTotals(
            requests=self.requests + other.requests,
            usage=self.usage + other.usage,
            cost=self.cost + other.cost,
            estimated=self.estimated + other.estimated,
            estimated_cost=self.estimated_cost + other.estimated_cost,
            missed=self.missed + other.missed,
        )

    @classmethod
    def of(cls, line: LedgerEntry) -> "CostTotals":
        """Return the totals of the one model call in *line*."""
        return cls(
            requests=1,
            usage=line.usage,
            cost=line.cost_usd,
            estimated=int(line.is_estimated),
            estimated_cost=line.cost_usd if line.is_estimated else Decimal(0),
            missed=line.missed,
        )


@attrs.frozen(kw_only=True)
class CostRow:
    """Totals of the model calls of one agent, one purpose or one model."""

    name: str
    spending: CostTotals
    parent: str | None = None
    """Name of the agent's parent; None for the lead (first agent), and if the row is not an agent."""
    depth: int = 0
    """Depth of the agent below the lead; 0 for the lead, and if the row is not an agent."""
    subtree: Decimal
    """Dollars of the agent and all its descendants; of the row itself if it is not an agent."""


def sum_costs(lines: Iterable[LedgerEntry]) -> CostTotals:
    """Return the totals of all model calls in *lines*."""
    return sum((CostTotals.of(line) for line in lines), CostTotals())


def group_costs(lines: Iterable[LedgerEntry], by: Grouping) -> list[CostRow]:
    """Group *lines* into rows: agents as a tree, parents first; purposes and models by descending cost."""
    lines = tuple(lines)
    groups: defaultdict[str, CostTotals] = defaultdict(CostTotals)
    for line in lines:
        groups[getattr(line, by)] += CostTotals.of(line)
    if by == "agent":
        return list(_tree(groups, {line.agent: line.parent for line in lines}))
    found = [CostRow(name=name, spending=spent, subtree=spent.cost) for name, spent in groups.items()]
    return sorted(found, key=lambda row: (-row.spending.cost, row.name))


def per_100_turns(lines: Iterable[LedgerEntry]) -> dict[str, float]:
    """Return for each purpose except `turn` the number of complete calls per 100 turns; empty if there is no turn."""
    counts = Counter(line.purpose for line in lines if not line.is_estimated)
    turns = counts.pop(TURN, 0)
    return {purpose: 100 * count / turns for purpose, count in sorted(counts.items())} if turns else {}


def _tree(groups: Mapping[str, CostTotals], parents: Mapping[str, str | None]) -> Iterator[CostRow]:
    """Yield the rows of agents, each before its children. A parent without model calls gets a row with zero totals."""
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in dict.fromkeys([*groups, *(parent for parent in parents.values() if parent is not None)]):
        children[_parent(name, parents)].append(name)

    def walk(name: str, depth: int) -> list[CostRow]:
        below = [walk(child, depth + 1) for child in children[name]]
        spent = groups.get(name, CostTotals())
        subtree = spent.cost + sum((found[0].subtree for found in below), Decimal(0))
        row = CostRow(name=name, spending=spent, parent=_parent(name, parents), depth=depth, subtree=subtree)
        return [row, *(each for found in below for each in found)]

    for name in children[None]:
        yield from walk(name, 0)


def ancestors(name: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the parent of agent *name*, its parent, and so on; empty if these form a cycle (damaged data)."""
    found: list[str] = []
    ancestor = parents.get(name)
    while ancestor is not None:
        if ancestor == name or ancestor in found:
            return []
        found.append(ancestor)
        ancestor = parents.get(ancestor)
    return found


def _parent(name: str, parents: Mapping[str, str | None]) -> str | None:
    return next(iter(ancestors(name, parents)), None)
