"""Steps that run hooks around tool calls and compactions, when an agent stops, and when a task is completed."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import attrs

from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.hooks.hook import HookEvent
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer, call_without_hooks
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import Trigger
from coterie.agents.loop.run_result import EndReason
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.types import Vote
from coterie.agents.prompts import render
from coterie.agents.tools.tool import ToolResult, call_tool
from coterie.mailbox.tasks.task import ListedTask

MAX_OBJECTIONS = 8
"""Number of times in a row that hooks can keep an agent from stopping, or postpone a compaction."""


@attrs.define(eq=False, kw_only=True)
class StopHook:
    """Step (a `StopStep`) that runs the hooks for *event* when the agent wants to stop; they can make it continue."""

    event: HookEvent
    hooks: HookRegistry
    subject: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict)
    is_ending: Callable[[], bool] = lambda: False
    """Function that returns True if the agent was asked to shut down; then no hooks run."""
    _objections: int = attrs.field(default=0, init=False)

    async def on_stop(self, agent: Agent, text: str) -> Sequence[bytes]:
        """Run the hooks; return a content block with the reasons of those that object, so that the agent continues.

        Empty, so that it stops, if no hook objects or one ends the run, at a shutdown, or after `MAX_OBJECTIONS`.
        """
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
            reason = f"{self.event} hooks kept the agent from stopping {MAX_OBJECTIONS} times in a row"
            agent.emit(LayerFailed(layer="hooks", reason=f"{reason}, so it now stops anyway; check these hooks"))
            return ()
        self._objections += 1
        return (text_block(render("hook_objection", event=self.event, text="\n".join(decision.objections))),)


@attrs.define(eq=False, kw_only=True)
class CompactionHook:
    """Runs the user's hooks before and after a compaction (replacement of old turns by a summary) of one agent."""

    hooks: HookRegistry
    on_restarted: Callable[[Agent], Awaitable[None]] | None = None
    """Called after a compaction, for example to run the SessionStart hooks; None if nothing is to be called."""
    _objections: int = attrs.field(default=0, init=False)

    async def objection(self, agent: Agent, trigger: Trigger) -> str | None:
        """Run the PreCompact hooks, and return their reasons against the compaction; None if it may proceed.

        An automatic compaction proceeds despite the hooks if the API rejected the prompt as too long, if the context
        window is full, or after `MAX_OBJECTIONS` in a row.
        """
        name = _trigger_name(trigger)
        decision = await self.hooks.fire("PreCompact", name, trigger=name, custom_instructions="")
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
        """Run the PostCompact hooks, then call `on_restarted`."""
        trigger = _trigger_name(compacted.trigger)
        tokens = {"tokens_before": compacted.tokens_before, "tokens_after": compacted.tokens_after}
        await self.hooks.fire("PostCompact", trigger, trigger=trigger, **tokens)
        if self.on_restarted is not None:
            await self.on_restarted(agent)


def _trigger_name(trigger: str) -> Literal["manual", "auto"]:
    return "manual" if trigger == "manual" else "auto"


async def check_task_completion(hooks: HookRegistry, agent: str, task: ListedTask) -> str | None:
    """Run the TaskCompleted hooks before *agent* completes *task*; return their objection, or None."""
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
    """Messages of hooks for the model until they are added to the conversation, and a hook's request to end the run."""

    stop: str | None = None
    """Reason that a hook gave for ending the run of the agent; None if no hook wants to end it."""
    _by_call: dict[str, list[bytes]] = attrs.field(factory=dict, init=False)

    def record(self, call: str, event: HookEvent, texts: Iterable[str]) -> None:
        """Store *texts* until the message with the result of the tool call *call* (its id) is added."""
        self._by_call.setdefault(call, []).extend(hook_message_block(event, text) for text in texts)

    def add_blocks(self, _agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return the stored messages for the calls in *answers* as blocks, and delete them; a `MessageStep`."""
        blocks = [block for answer in answers for block in self._by_call.pop(answer.call["id"], ())]
        return AddedBlocks(blocks=tuple(blocks)) if blocks else NOTHING

    async def before_call(self, _agent: Agent) -> EndReason | None:
        """Step before each model call: return "hook", which ends the run, if a hook has requested it, else None."""
        return None if self.stop is None else "hook"


def hook_message_block(event: HookEvent, text: str) -> bytes:
    """Return *text*, which a hook has printed for the model, as a content block that names *event*."""
    return text_block(render("hook_remark", event=event, text=text))


@attrs.frozen(kw_only=True)
class ToolCallHooks:
    """Function (a `Caller`) that executes an agent's tool calls, with hooks before a call and after a successful one.

    The conversation keeps the input as the model sent it. An input that a hook has changed is validated like any other,
    and permissions are checked against the changed input.
    """

    hooks: HookRegistry
    authority: Authorizer
    messages: HookMessages

    async def __call__(self, agent: Agent, call: dict[str, Any]) -> ToolResult:
        """Execute the tool call *call* with its hooks and return the result; a hook can deny the call."""
        name, id_ = call["name"], call["id"]
        if name not in agent.tools:
            return await call_without_hooks(agent, call)
        if self.messages.stop is not None:  # Requested by an earlier call of the same turn.
            return _denied(self.messages.stop)
        facts = {"tool_name": name, "tool_use_id": id_}
        before = await self.hooks.fire("PreToolUse", name, tool_input=call["input"], **facts)
        self.messages.record(id_, "PreToolUse", before.contexts)
        self.messages.stop = self.messages.stop or before.stop
        if before.refusal is not None:
            return _denied(before.refusal)
        given = call["input"] if before.updated_input is None else before.updated_input
        vote = None if before.vote is None else Vote(wants=before.vote, reason=before.vote_reason)
        denial = partial(self.authority.denial, vote=vote)
        result = await call_tool(agent.tools, name, given, agent.workspace, denial)
        if result.is_error:
            return result
        response = _response(name, given, result)
        after = await self.hooks.fire("PostToolUse", name, tool_input=given, tool_response=response, **facts)
        self.messages.record(id_, "PostToolUse", (*after.objections, *after.contexts))
        self.messages.stop = self.messages.stop or after.stop
        return result


def _denied(reason: str) -> ToolResult:
    return ToolResult(text=render("hook_denied", reason=reason), is_error=True)


def _response(name: str, given: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """Return *result* as input for PostToolUse hooks, with additional keys that hooks of another product expect."""
    response: dict[str, Any] = {"text": result.text, "is_error": result.is_error}
    if name == "Bash":
        response |= {"stdout": result.text, "stderr": "", "interrupted": False}
    if isinstance(path := given.get("file_path"), str):
        response["filePath"] = path
    return response
