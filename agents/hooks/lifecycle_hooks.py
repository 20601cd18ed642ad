"""Hooks around compaction, the end of a run and the completion of a task, and their messages."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.hooks.hook import HookEvent
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import Trigger
from coterie.agents.loop.run_result import EndReason
from coterie.agents.prompts import render
from coterie.mailbox.tasks.task import ListedTask

IN_A_ROW = 8
"""Objections after which an agent ends, or is compacted, all the same."""


@attrs.define(eq=False, kw_only=True)
class StopHook:
    """As `StopStep`: asks the hooks for *event* before the agent ends."""

    event: HookEvent
    hooks: HookRegistry
    subject: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    is_ending: Callable[[], bool] = lambda: False
    """Whether somebody has asked the agent to end: then nobody is asked whether it may."""
    _in_a_row: int = attrs.field(default=0, init=False)

    async def on_stop(self, agent: Agent, text: str) -> Sequence[bytes]:
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
            agent.emit(LayerFailed(layer="hooks", reason=reason))
            return ()
        self._in_a_row += 1
        return (text_block(render("hook_objection", event=self.event, text="\n".join(advice.objections))),)


@attrs.define(eq=False, kw_only=True)
class CompactionHook:
    """Asks the hooks before a compaction of one agent, and tells them of it afterwards."""

    hooks: HookRegistry
    began: Callable[[Agent], Awaitable[None]] | None = None
    """What happens when the conversation has begun anew; None for nothing."""
    _in_a_row: int = attrs.field(default=0, init=False)

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Why it is not to be done now; None if it may, or must: a full window is not argued with."""
        advice = await self.hooks.fire(
            "PreCompact", _trigger_name(trigger), trigger=_trigger_name(trigger), custom_instructions=""
        )
        reasons = (*advice.objections, *(() if advice.stop is None else (advice.stop,)))
        if not reasons:
            self._in_a_row = 0
            return None
        if trigger != "manual":
            is_full = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.block
            if trigger == "overflow" or is_full or self._in_a_row == IN_A_ROW:
                self._in_a_row = 0
                reason = "PreCompact objected, but it cannot wait any longer: it is compacted all the same"
                agent.emit(LayerFailed(layer="hooks", reason=reason))
                return None
            self._in_a_row += 1
        return "\n".join(reasons)

    async def on_compacted(self, agent: Agent, compacted: Compacted) -> None:
        """Run the hooks for a compaction that has happened."""
        trigger = _trigger_name(compacted.trigger)
        await self.hooks.fire(
            "PostCompact",
            trigger,
            trigger=trigger,
            tokens_before=compacted.tokens_before,
            tokens_after=compacted.tokens_after,
        )
        if self.began is not None:
            await self.began(agent)


def _trigger_name(trigger: str) -> Literal["manual", "auto"]:
    return "manual" if trigger == "manual" else "auto"


async def check_task_completion(hooks: HookRegistry, agent: str, task: ListedTask) -> str | None:
    """Why *task* is not done yet, though *agent* says so; None if it is."""
    advice = await hooks.fire(
        "TaskCompleted",
        task_id=str(task.id),
        task_subject=task.subject,
        task_description=task.description,
        teammate_name=agent,
    )
    return "\n".join((*advice.objections, *(() if advice.stop is None else (advice.stop,)))) or None


@attrs.define(eq=False)
class HookMessages:
    """Keeps what hooks say until the model hears it, and whether one of them wants the run to end."""

    stop: str | None = None
    """Why it is to end; None if it is not."""
    _by_call: dict[str, list[bytes]] = attrs.field(factory=dict, init=False)

    def record(self, call: str, event: HookEvent, texts: Iterable[str]) -> None:
        """Keep *texts*, which were said about *call*."""
        self._by_call.setdefault(call, []).extend(hook_message_block(event, text) for text in texts)

    def add_blocks(self, _agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """As `MessageStep.add_blocks`: in the order of the calls, whichever was ready first."""
        blocks = [block for answer in answers for block in self._by_call.pop(answer.call["id"], ())]
        return AddedBlocks(blocks=tuple(blocks)) if blocks else NOTHING

    async def before_call(self, _agent: Agent) -> EndReason | None:
        """As `CallStep.before_call`: end the run if a hook wants that."""
        return None if self.stop is None else "hook"


def hook_message_block(event: HookEvent, text: str) -> bytes:
    """*text* of a hook as a block."""
    return text_block(render("hook_remark", event=event, text=text))
