"""Costs that a session would have had without the prompt cache, or with perfect sharing.

Every figure is the bill itself with some tokens moved from one price to another, so output and what was never
cached cost the same in all of them. Lines of a model that the table does not know stay as they were billed.
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
    """Dollars that the same requests would have cost."""

    without_cache: Decimal
    """With all input at the plain price."""
    without_sharing: Decimal
    """With every agent reading only what it had cached itself, and writing the rest for five minutes."""
    perfect_sharing: Decimal
    """With every prefix written once, and read whenever it is known to have been there."""


def cost_alternatives(lines: Iterable[LedgerEntry]) -> CostAlternatives:
    """Work out what *lines*, in the order of the ledger, would have cost."""
    own: defaultdict[tuple[str, str], int] = defaultdict(int)
    written: defaultdict[tuple[str, str], int] = defaultdict(int)
    without_cache = without_sharing = perfect = Decimal(0)
    for line in lines:
        agent, prefix = (line.model, line.agent), (line.model, line.prefix)
        without_cache += _cost(line, _uncached(line))
        without_sharing += _cost(line, _unshared(line, own[agent]))
        perfect += _cost(line, _shared(line, written[prefix] if line.prefix else 0))
        own[agent] = max(own[agent], line.cached)
        written[prefix] = max(written[prefix], line.cached)
    return CostAlternatives(without_cache=without_cache, without_sharing=without_sharing, perfect_sharing=perfect)


def _uncached(line: LedgerEntry) -> Usage:
    return Usage(input=line.usage.prompt, output=line.usage.output)


def _unshared(line: LedgerEntry, own: int) -> Usage:
    """With only the first *own* tokens to be found in the cache, as the agent's earlier requests had left them."""
    used = line.usage
    of_others = max(0, used.read - own)
    return attrs.evolve(used, read=used.read - of_others, write_5m=used.write_5m + of_others)


def _shared(line: LedgerEntry, written: int) -> Usage:
    """With all read that should have been in the cache, or that a request with the same prefix had left there."""
    used = line.usage
    there = min(line.cached, max(used.read, line.expected_read or 0, written))
    more = there - used.read
    # What lives longest stands first in a prompt, so it is what would have been read.
    of_1h = min(more, used.write_1h)
    return attrs.evolve(used, read=there, write_1h=used.write_1h - of_1h, write_5m=used.write_5m - (more - of_1h))


def _cost(line: LedgerEntry, usage: Usage) -> Decimal:
    """What *line* would have cost with *usage*: its own dollars, and the difference at the prices of the table."""
    model = known_models().find(line.model)
    if model is None:
        return line.cost_usd
    price = model.price(line.usage.prompt)
    return line.cost_usd + price.of(usage) - price.of(line.usage)
