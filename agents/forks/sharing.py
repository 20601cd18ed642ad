"""Whether the cache gave a fork what its parent had left there; if not, why."""

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import CacheBroke, Cause
from coterie.agents.forks.point import ForkPoint
from coterie.agents.layers.clearing import LIVES
from coterie.agents.model.reply import Reply

SHARE = 0.01
"""The part of what was expected that may be missing without a word."""


@attrs.define(eq=False)
class CheckSharing:
    """Compares a fork's first reply with what its parent had cached."""

    _point: ForkPoint
    _is_done: bool = False

    def heard(self, agent: Agent, reply: Reply) -> None:
        """Tell of a shortfall, unless somebody had announced it."""
        is_first, self._is_done = not self._is_done, True
        expected, read = self._point.expected_read, reply.usage.read
        if not is_first or expected is None or agent.announced or read >= expected * (1 - SHARE):
            return
        cause, detail = self._explain(agent)
        agent.tell(CacheBroke(cause=cause, detail=detail, read_before=expected, read_now=read))

    def _explain(self, agent: Agent) -> tuple[Cause, str]:
        point, length = self._point, len(self._point.prefix)
        prefix = agent.conversation.prefix
        if len(prefix) < length or prefix.hash_at(length) != point.hash:
            return "messages", f"what was shared with {point.parent} was rewritten before the first request"
        life = LIVES[point.ttl.last]
        age = 0.0 if point.used_at is None else agent.clock.now() - point.used_at
        if age > life:
            return "expired", f"{point.parent} had used it {age:.0f} seconds ago, and the cache keeps it for {life:.0f}"
        return "server", f"the request began with the bytes of {point.parent} and came in time"
