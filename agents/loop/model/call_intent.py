"""Intent of a model call: the facts from which the gateway derives its reservation and priority."""

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
"""Priority by purpose, lowest number first: an agent is idle while its turn waits; nothing waits for a summary."""
UNRANKED = 3


@attrs.frozen(kw_only=True)
class CallFacts:
    """Facts of a model call that its request and its intent have in common."""

    purpose: str = "turn"
    """turn, notes, compaction, extraction, dream, recall, summary or refresh."""
    model: Model
    prompt_tokens: int
    """Estimate of the whole input, for the gateway's reservation."""
    max_tokens: int
    """0 only writes the prompt cache; such a request must not ask for a stream."""
    prefix: bytes = b""
    """Hash of the conversation's prefix."""
    expected_read: int | None = None
    """Tokens that should be in the prompt cache already; None if unknown."""
    shared: bytes | None = None
    """Hash of the part that other agents may share: siblings of a fork, or new agents of the same type.

    None if there is none or it was sent before.
    """
    ttl: Ttl = "5m"
    """The longest time to live of the request's markers."""


@attrs.frozen(kw_only=True)
class CallIntent(CallFacts):
    """Description of a model call for its admission."""

    agent: str

    @property
    def priority(self) -> int:
        """Rank among waiting calls; the lowest number is admitted first."""
        return PRIORITIES.get(self.purpose, UNRANKED)

    @property
    def most(self) -> Usage:
        """Largest possible usage: the input plus a third, all written to the cache, and `max_tokens` of output."""
        padded = -(-self.prompt_tokens * 4 // 3)
        if self.ttl == "1h":
            return Usage(write_1h=padded, output=self.max_tokens)
        return Usage(write_5m=padded, output=self.max_tokens)

    @property
    def reserve(self) -> Decimal:
        """Largest possible cost of the call in dollars."""
        return self.model.cost(self.most)

    def at_most(self, begun: Usage) -> Usage:
        """Return the largest possible usage of a reply that broke off after *begun* was reported."""
        return attrs.evolve(begun, output=max(begun.output, self.max_tokens))
