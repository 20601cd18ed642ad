"""Hooks at the end of an agent's work: one that objects sends it on, so often and no more."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from coterie.agents.agent import Agent
from coterie.agents.conversation import text_block
from coterie.agents.events import LayerFailed
from coterie.agents.hooks.hook import HookEvent
from coterie.agents.hooks.hooks import Hooks
from coterie.agents.prompt import render

IN_A_ROW = 8
"""Objections after which an agent ends, or is compacted, all the same."""


@attrs.define(eq=False, kw_only=True)
class AskAtStop:
    """As `StopStep`: asks the hooks for *event* before the agent ends."""

    event: HookEvent
    hooks: Hooks
    subject: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    is_ending: Callable[[], bool] = lambda: False
    """Whether somebody has asked the agent to end: then nobody is asked whether it may."""
    _in_a_row: int = attrs.field(default=0, init=False)

    async def objection(self, agent: Agent, text: str) -> Sequence[bytes]:
        """What the hooks object, as one block; nothing when they have done so too often without a pause."""
        if self.is_ending():
            return ()
        is_active = self._in_a_row > 0
        advice = await self.hooks.fire(
            self.event, self.subject, stop_hook_active=is_active, last_assistant_message=text, **self.facts
        )
        if advice.stop is not None or not advice.objections:
            self._in_a_row = 0
            return ()
        if self._in_a_row == IN_A_ROW:
            self._in_a_row = 0
            reason = f"{self.event} has objected {IN_A_ROW} times in a row; the agent ends all the same"
            agent.tell(LayerFailed(layer="hooks", reason=reason))
            return ()
        self._in_a_row += 1
        return (text_block(render("hook_objection", event=self.event, text="\n".join(advice.objections))),)
