"""Costs that a session would have without prompt cache, or if agents shared cached prefixes not at all or perfectly.

Each figure is the real bill with some tokens moved to another price. So output and uncached input cost the same in all
of them, and a model without known prices keeps its billed cost.
"""

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

import attrs

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.ledger import LedgerEntry


@attrs.frozen(kw_only=True)
class CostAlternatives:
    """Dollars that the same requests would have cost without prompt cache, or with no or perfect sharing by agents."""

    without_cache: Decimal
    """Cost if no prompt cache existed, so that all input had the uncached price."""
    without_sharing: Decimal
    """Cost if no agent read cache entries of others: these tokens would be cache writes with five minutes lifetime."""
    perfect_sharing: Decimal
    """Cost if each call had read from the cache all tokens that it expected, or that earlier calls had put there."""


def cost_alternatives(lines: Iterable[LedgerEntry]) -> CostAlternatives:
    """Compute the costs of *lines*, in ledger order, without prompt cache, without sharing and with perfect sharing."""
    own: defaultdict[tuple[str, str], int] = defaultdict(int)
    written: defaultdict[tuple[str, str], int] = defaultdict(int)
    without_cache = without_sharing = perfect = Decimal(0)
    for line in lines:
        agent, prefix = (line.model, line.agent), (line.model, line.prefix)
        without_cache += _cost(line, Usage(input=line.usage.prompt, output=line.usage.output))
        without_sharing += _cost(line, _unshared(line, own[agent]))
        perfect += _cost(line, _shared(line, written[prefix] if line.prefix else 0))
        own[agent] = max(own[agent], line.cached)
        written[prefix] = max(written[prefix], line.cached)
    return CostAlternatives(without_cache=without_cache, without_sharing=without_sharing, perfect_sharing=perfect)


def _unshared(line: LedgerEntry, own: int) -> Usage:
    """Return the usage of *line* if it had read only *own* tokens: those that the same agent had cached before."""
    used = line.usage
    from_others = max(0, used.read - own)
    return attrs.evolve(used, read=used.read - from_others, write_5m=used.write_5m + from_others)


def _shared(line: LedgerEntry, written: int) -> Usage:
    """Return the usage of *line* if it had read its expected tokens, or the *written* ones of its prefix if more."""
    used = line.usage
    cached = min(line.cached, max(used.read, line.expected_read or 0, written))
    more = cached - used.read
    # Content with the longest lifetime comes first in a prompt, so it would have been read first.
    of_1h = min(more, used.write_1h)
    return attrs.evolve(used, read=cached, write_1h=used.write_1h - of_1h, write_5m=used.write_5m - (more - of_1h))


def _cost(line: LedgerEntry, usage: Usage) -> Decimal:
    """Return the cost of *line* with *usage*: billed cost plus difference at list prices (none for unknown models)."""
    model = known_models().find(line.model)
    if model is None:
        return line.cost_usd
    price = model.price(line.usage.prompt)
    return line.cost_usd + price.of(usage) - price.of(line.usage)
