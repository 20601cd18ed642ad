"""Layer 2 when a request holds more pictures and pages than the API takes: all but the newest leave the context."""

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import ResultsCleared
from coterie.agents.overflow import Overflow
from coterie.memory.clearing import results_with_media, without_media

KEPT = 12 * 1024 * 1024
"""Bytes of the newest result that may stay; a larger one may be what is too much by itself."""


@attrs.frozen
class LeaveOutMedia:
    """Without it a conversation that holds too much would be refused again with every turn, whatever it is about."""

    async def recover(self, agent: Agent, overflow: Overflow) -> bool:
        """Begin a new epoch without what the model has looked at before; False if it is the text that is too long."""
        segments = agent.conversation.segments
        found = results_with_media(segments) if overflow.is_media else {}
        if not found:
            return False
        newest = list(found)[-1]
        old = [id_ for id_ in found if id_ != newest or len(found) == 1 or found[id_] > KEPT]
        before = agent.meter.tokens(agent.conversation)
        agent.conversation.rewrite(without_media(segments, old))
        agent.transcript.record(agent.conversation)
        agent.announced.append("pictures and pages left out")
        agent.tell(
            ResultsCleared(
                mechanism="size",
                results=len(old),
                tokens_before=before,
                tokens_after=agent.meter.tokens(agent.conversation),
                where=str(agent.transcript.path),
            )
        )
        return True
