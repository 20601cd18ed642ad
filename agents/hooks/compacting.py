"""Hooks around a compaction: one may put it off, as long as the agent can work without it."""

from collections.abc import Awaitable, Callable
from typing import Literal

import attrs

from coterie.agents.agent import Agent
from coterie.agents.conversation.records import Trigger
from coterie.agents.events import Compacted, LayerFailed
from coterie.agents.hooks.hooks import Hooks
from coterie.agents.hooks.stopping import IN_A_ROW


@attrs.define(eq=False, kw_only=True)
class AskBeforeCompaction:
    """Asks the hooks before a compaction of one agent, and tells them of it afterwards."""

    hooks: Hooks
    began: Callable[[Agent], Awaitable[None]] | None = None
    """What happens when the conversation has begun anew; None for nothing."""
    _in_a_row: int = attrs.field(default=0, init=False)

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Why it is not to be done now; None if it may, or must: a full window is not argued with."""
        advice = await self.hooks.fire("PreCompact", _said(trigger), trigger=_said(trigger), custom_instructions="")
        reasons = (*advice.objections, *(() if advice.stop is None else (advice.stop,)))
        if not reasons:
            self._in_a_row = 0
            return None
        if trigger != "manual":
            is_full = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.block
            if trigger == "overflow" or is_full or self._in_a_row == IN_A_ROW:
                self._in_a_row = 0
                reason = "PreCompact objected, but it cannot wait any longer: it is compacted all the same"
                agent.tell(LayerFailed(layer="hooks", reason=reason))
                return None
            self._in_a_row += 1
        return "\n".join(reasons)

    async def compacted(self, agent: Agent, told: Compacted) -> None:
        """Tell of a compaction that has happened."""
        trigger = _said(told.trigger)
        await self.hooks.fire(
            "PostCompact",
            trigger,
            trigger=trigger,
            tokens_before=told.tokens_before,
            tokens_after=told.tokens_after,
        )
        if self.began is not None:
            await self.began(agent)


def _said(trigger: str) -> Literal["manual", "auto"]:
    return "manual" if trigger == "manual" else "auto"
