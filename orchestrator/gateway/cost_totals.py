"""Cost totals by agent, purpose or model."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Literal

import attrs

from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.ledger import LedgerEntry

Grouping = Literal["agent", "purpose", "model"]
TURN = "turn"
"""The purpose of an agent's own calls; all others serve it."""


@attrs.frozen(kw_only=True)
class CostTotals:
    """What some requests come to. Adding two gives what both do."""

    requests: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Dollars, exact; for requests that broke off an upper bound."""
    estimated: int = 0
    """How many of the requests broke off."""
    estimated_cost: Decimal = Decimal(0)
    """Their part of the dollars."""
    missed: int = 0
    """Tokens that should have been read from the cache and were not."""

    @property
    def cached_share(self) -> float:
        """The part of all input that was read from the cache, from 0 to 1."""
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
        """What one request comes to."""
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
    """One group of requests."""

    name: str
    spending: CostTotals
    parent: str | None = None
    """Of an agent: who spawned it."""
    depth: int = 0
    """Of an agent: how many spawns from the first one."""
    subtree: Decimal
    """Of an agent: dollars of it and of all that it spawned, directly or not."""


def sum_costs(lines: Iterable[LedgerEntry]) -> CostTotals:
    """What all *lines* come to."""
    return sum((CostTotals.of(line) for line in lines), CostTotals())


def group_costs(lines: Iterable[LedgerEntry], by: Grouping) -> list[CostRow]:
    """The groups of *lines*; agents as a tree, each right below who spawned it, everything else the dearest first."""
    lines = tuple(lines)
    groups: defaultdict[str, CostTotals] = defaultdict(CostTotals)
    for line in lines:
        groups[getattr(line, by)] += CostTotals.of(line)
    if by == "agent":
        return list(_tree(groups, {line.agent: line.parent for line in lines}))
    found = [CostRow(name=name, spending=spent, subtree=spent.cost) for name, spent in groups.items()]
    return sorted(found, key=lambda row: (-row.spending.cost, row.name))


def per_100_turns(lines: Iterable[LedgerEntry]) -> dict[str, float]:
    """How many calls of each other purpose there were for a hundred turns; nothing before the first turn."""
    counts = Counter(line.purpose for line in lines if not line.is_estimated)
    turns = counts.pop(TURN, 0)
    return {purpose: 100 * count / turns for purpose, count in sorted(counts.items())} if turns else {}


def _tree(groups: Mapping[str, CostTotals], parents: Mapping[str, str | None]) -> Iterator[CostRow]:
    """Agents in the order of a walk from parents to children; a parent without requests has an empty row."""
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
    """Who spawned *name*, who spawned that one, and so on; none, if by the ledger it would be its own ancestor."""
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
