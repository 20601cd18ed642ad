"""A circuit breaker: when summaries keep failing, no model is asked for one any more."""

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import BreakerTripped, LayerFailed

LAYER = "compaction"


@attrs.define(eq=False)
class Breaker:
    """Counts failures in a row. It stays open for the rest of the session, over a resume as well."""

    limit: int
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """Whether no model may be asked."""
        return self.failures >= self.limit

    def failed(self, agent: Agent, reason: str) -> None:
        """Count a failure, and tell of it; the last one trips the breaker."""
        self.failures += 1
        agent.tell(LayerFailed(layer=LAYER, reason=reason))
        if self.failures == self.limit:
            agent.tell(BreakerTripped(failures=self.failures, reason=reason))

    def worked(self) -> None:
        """A summary has come: the count begins anew."""
        self.failures = 0
