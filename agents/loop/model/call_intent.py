"""Intent of a model call: data by which the gateway (admission of model calls) decides when the call may be sent."""

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
"""Purpose of a call -> priority; 0 goes first, because an agent is idle while its turn waits for the model."""
UNRANKED = 3


@attrs.frozen(kw_only=True)
class CallFacts:
    """Properties of a model call that both its request and its intent (description for the gateway) contain."""

    purpose: str = "turn"
    """Reason of the call: "turn" (normal work), or another key of `PRIORITIES` for background work, such as "notes"."""
    model: Model
    prompt_tokens: int
    """Estimated tokens of the whole input, from which the gateway calculates the price to reserve."""
    max_tokens: int
    """Maximum output tokens; with 0 the call only writes or refreshes the prompt cache, and must not be streamed."""
    prefix: bytes = b""
    """Hash of the conversation that is sent, with which the gateway finds calls that can share a cache entry."""
    expected_read: int | None = None
    """Number of input tokens that should be in the prompt cache already; None if unknown."""
    shared: bytes | None = None
    """Hash of the first part of the prompt, which other agents (sibling forks, or agents of one type) may also send.

    None if no part is shared, or if this agent has sent it since the last rewrite of its conversation.
    """
    ttl: Ttl = "5m"
    """Longest time to live of the prompt cache entries that the request writes."""


@attrs.frozen(kw_only=True)
class CallIntent(CallFacts):
    """Description of a model call by which the gateway (admission of model calls) decides if and when it may start."""

    agent: str

    @property
    def priority(self) -> int:
        """Rank among the calls that wait for admission; the lowest number goes first."""
        return PRIORITIES.get(self.purpose, UNRANKED)

    @property
    def most(self) -> Usage:
        """Largest possible token usage: estimated input plus a third, all written to the cache, and maximum output."""
        padded = -(-self.prompt_tokens * 4 // 3)
        if self.ttl == "1h":
            return Usage(write_1h=padded, output=self.max_tokens)
        return Usage(write_5m=padded, output=self.max_tokens)

    @property
    def reserve(self) -> Decimal:
        """Largest possible cost of the call in dollars, to reserve in the budget before the call."""
        return self.model.cost(self.most)

    def at_most(self, begun: Usage) -> Usage:
        """Return the largest possible usage of a reply that broke off: the reported *begun*, with maximum output."""
        return attrs.evolve(begun, output=max(begun.output, self.max_tokens))
