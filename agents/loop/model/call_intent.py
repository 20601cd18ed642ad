"""Intent of a model call: the facts that reserve its price and order it among others."""

from decimal import Decimal

import attrs

from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Ttl, Usage

PRIORITIES = {
    "turn": 0,
    "compaction": 1,
    "notes": 2,
    "extraction": 3,
    "dream": 3,
    "recall": 3,
    "summary": 4,
    "refresh": 4,
}
"""Purpose -> rank, the lowest first: who waits for a turn is idle, and nothing waits for a summary or a refresh."""
UNRANKED = 3


@attrs.frozen(kw_only=True)
class CallIntent:
    """What a call is going to do: enough to reserve its price and to order it among others."""

    agent: str
    purpose: str
    model: Model
    prompt_tokens: int
    """An estimate of the whole input."""
    max_tokens: int
    prefix: bytes
    """The running hash of the request's prefix; equal for siblings that share a cache entry."""
    expected_read: int | None = None
    """Tokens that the cache should already hold; None if nobody knows."""
    shared: bytes | None = None
    """The hash where the part ends that others have too: a fork's siblings, or fresh agents of the same type."""
    ttl: Ttl = "5m"
    """The longest life that one of the request's markers asks for."""

    @property
    def priority(self) -> int:
        """Its rank among waiting calls; the lowest is served first."""
        return PRIORITIES.get(self.purpose, UNRANKED)

    @property
    def most(self) -> Usage:
        """The most the call may use: its padded input, all written to the cache, and all the output it may make."""
        padded = -(-self.prompt_tokens * 4 // 3)
        if self.ttl == "1h":
            return Usage(write_1h=padded, output=self.max_tokens)
        return Usage(write_5m=padded, output=self.max_tokens)

    @property
    def reserve(self) -> Decimal:
        """The most the call may cost, in dollars."""
        return self.model.cost(self.most)

    def at_most(self, begun: Usage) -> Usage:
        """The most that a reply may have used which broke off when *begun* had been reported."""
        return attrs.evolve(begun, output=max(begun.output, self.max_tokens))
