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

MAX_OBJECTIONS = 8
"""Number of consecutive objections after which hooks are overruled."""


@attrs.define(eq=False, kw_only=True)
class StopHook:
    """A `StopStep` that runs the hooks for *event* before the agent stops."""

    event: HookEvent
    hooks: HookRegistry
    subject: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    is_ending: Callable[[], bool] = lambda: False
    """Returns True if the agent was asked to shut down; the hooks do not run then."""
    _objections: int = attrs.field(default=0, init=False)

    async def on_stop(self, agent: Agent, text: str) -> Sequence[bytes]:
        """Return the objections of the hooks as one block; empty after too many consecutive objections."""
        if self.is_ending():
            return ()
        is_active = self._objections > 0
        decision = await self.hooks.fire(
            self.event, self.subject, stop_hook_active=is_active, last_assistant_message=text, **self.facts
        )
        if decision.stop is not None or not decision.objections:
            self._objections = 0
            return ()
        if self._objections == MAX_OBJECTIONS:
            self._objections = 0
            reason = (
                f"hooks of {self.event} have objected {MAX_OBJECTIONS} times in a row; the agent stops nevertheless"
            )
            agent.emit(LayerFailed(layer="hooks", reason=reason))
            return ()
        self._objections += 1
        return (text_block(render("hook_objection", event=self.event, text="\n".join(decision.objections))),)


@attrs.define(eq=False, kw_only=True)
class CompactionHook:
    """Runs the hooks before and after a compaction of one agent."""

    hooks: HookRegistry
    on_restarted: Callable[[Agent], Awaitable[None]] | None = None
    """Called after a compaction, when the conversation has a new beginning; None for no call."""
    _objections: int = attrs.field(default=0, init=False)

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Return the objection to a compaction; None if it may proceed, or must because the window is full."""
        decision = await self.hooks.fire(
            "PreCompact", _trigger_name(trigger), trigger=_trigger_name(trigger), custom_instructions=""
        )
        if decision.refusal is None:
            self._objections = 0
            return None
        if trigger != "manual":
            is_full = agent.meter.tokens(agent.conversation) >= agent.meter.thresholds.block
            if trigger == "overflow" or is_full or self._objections == MAX_OBJECTIONS:
                self._objections = 0
                reason = "a PreCompact hook objected, but the compaction cannot wait any longer and proceeds"
                agent.emit(LayerFailed(layer="hooks", reason=reason))
                return None
            self._objections += 1
        return decision.refusal

    async def on_compacted(self, agent: Agent, compacted: Compacted) -> None:
        """Run the PostCompact hooks."""
        trigger = _trigger_name(compacted.trigger)
        await self.hooks.fire(
            "PostCompact",
            trigger,
            trigger=trigger,
            tokens_before=compacted.tokens_before,
            tokens_after=compacted.tokens_after,
        )
        if self.on_restarted is not None:
            await self.on_restarted(agent)


def _trigger_name(trigger: str) -> Literal["manual", "auto"]:
    return "manual" if trigger == "manual" else "auto"


async def check_task_completion(hooks: HookRegistry, agent: str, task: ListedTask) -> str | None:
    """Return the objection of hooks to *agent* completing *task*; None if there is none."""
    decision = await hooks.fire(
        "TaskCompleted",
        task_id=str(task.id),
        task_subject=task.subject,
        task_description=task.description,
        teammate_name=agent,
    )
    return decision.refusal


@attrs.define(eq=False)
class HookMessages:
    """Keeps messages of hooks until they are added to the conversation, and a request to end the run."""

    stop: str | None = None
    """Reason to end the run; None to continue."""
    _by_call: dict[str, list[bytes]] = attrs.field(factory=dict, init=False)

    def record(self, call: str, event: HookEvent, texts: Iterable[str]) -> None:
        """Keep *texts* for the message with the result of *call*."""
        self._by_call.setdefault(call, []).extend(hook_message_block(event, text) for text in texts)

    def add_blocks(self, _agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return the kept messages as blocks, in the order of the calls; as `MessageStep.add_blocks`."""
        blocks = [block for answer in answers for block in self._by_call.pop(answer.call["id"], ())]
        return AddedBlocks(blocks=tuple(blocks)) if blocks else NOTHING

    async def before_call(self, _agent: Agent) -> EndReason | None:
        """End the run if a hook has requested it; as `CallStep.before_call`."""
        return None if self.stop is None else "hook"


def hook_message_block(event: HookEvent, text: str) -> bytes:
    """Return the *text* of a hook as a content block."""
    return text_block(render("hook_remark", event=event, text=text))
