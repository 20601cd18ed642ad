"""Turn loop of one agent: call the model, record its reply, run its tools, record their results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ModelError
from coterie.agents.events.agent_events import Event, Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.agents.loop.agent import UNREADABLE, Agent, ToolAnswer
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES
from coterie.agents.loop.conversation.transcript_records import ReplyRecord
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.usage import Usage
from coterie.agents.loop.run_result import EndReason, RunEnded, RunLimits
from coterie.agents.prompts import render
from coterie.agents.tools.tool import Access, Tool, ToolResult

PAUSE = 0.1
"""Minimum seconds between two `TextEmitted` events of a text block that is still being streamed."""


@attrs.define(eq=False)
class TextStream:
    """Converter from stream events of the API to `TextEmitted` events, with which viewers show a reply as it grows."""

    _turn: int
    _emit: Callable[[Event], None]
    _pieces: list[str] = attrs.field(factory=list)
    _emitted_at: float = float("-inf")

    def feed(self, event: dict[str, Any]) -> None:
        """Collect the text of one stream event. Emit it at most every PAUSE seconds, and at the end of a block."""
        if event["type"] == "content_block_delta" and event["delta"].get("type") == "text_delta":
            self._pieces.append(event["delta"]["text"])
            if trio.current_time() - self._emitted_at >= PAUSE:
                self._flush()
        elif event["type"] == "content_block_stop":
            self._flush()

    def _flush(self) -> None:
        if text := "".join(self._pieces):
            self._emit(TextEmitted(turn=self._turn, text=text))
            self._emitted_at = trio.current_time()
        self._pieces.clear()


OUTPUT_SIZES = (8_000, 16_000, 32_000, 64_000)
"""Values of `max_tokens`, tried in this order: a reply that the limit cut off is requested again with the next one."""
READERS = 10
"""Maximum number of consecutive tool calls that run at the same time, if all only read or all start agents."""
INTERRUPTED = ToolResult(
    text="The run was interrupted before this call had a result. It may or may not have taken effect.", is_error=True
)

WINDOW_FULL = "model_context_window_exceeded"

_ENDS: Mapping[str, EndReason] = {"refusal": "refused", "max_tokens": "cut_off", WINDOW_FULL: "prompt_too_long"}
"""End reason of the run for each stop reason of the API that ends the loop with an incomplete reply."""


@attrs.define(eq=False)
class _Run:
    """State of one run of the turn loop: limits, usage so far, and the tool calls and results of the current turn."""

    limits: RunLimits
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    text: str = ""
    calls: Sequence[dict[str, Any]] = ()
    results: dict[str, ToolResult] = attrs.field(factory=dict)
    has_recovered: bool = False
    """True if shortening a too long conversation was tried since the last complete reply; prevents endless attempts."""

    @property
    def limit_reached(self) -> EndReason | None:
        if self.turns >= self.limits.turns:
            return "max_turns"
        is_spent = self.limits.tokens is not None and self.usage.total >= self.limits.tokens
        return "budget" if is_spent else None

    def end(self, reason: EndReason, error: ModelError | BudgetSpent | None = None) -> RunEnded:
        return RunEnded(
            reason=reason,
            text=self.text,
            turns=self.turns,
            tool_calls=self.tool_calls,
            usage=self.usage,
            cost=self.cost,
            error=error,
        )


async def run_loop(agent: Agent, limits: RunLimits) -> RunEnded:
    """Run model turns until the model makes no more tool calls, or until a limit, a model error or a step ends the run.

    Each message is written to the transcript before it has effects: tool calls before they run, results before the
    model sees them. `Agent.interrupt` and the limit of seconds end the turn with the tool results that exist then.
    Cancellation from outside and a crash leave tool calls without results. When the agent is resumed,
    `close_open_calls` answers them. Raises `ReplyMalformed`, and `OSError` if the transcript cannot be written.
    """
    run = _Run(limits)
    deadline = trio.current_time() + (limits.seconds or float("inf"))
    agent.scope = trio.CancelScope(deadline=deadline)
    with agent.scope:
        return await _work(agent, run)
    if agent.conversation.open_tool_uses:
        await _answer(agent, run)
    return run.end("budget" if trio.current_time() >= deadline else "cancelled")


def close_open_calls(agent: Agent) -> int:
    """Append an error as the result of each tool call without result, and return the number of these calls.

    The calls are not run again, because they may have had effects before a crash or cancellation.
    """
    open_calls = agent.conversation.open_tool_uses
    if open_calls:
        agent.append_message("user", [INTERRUPTED.block(call) for call in open_calls])
    return len(open_calls)


async def _work(agent: Agent, run: _Run) -> RunEnded:
    while True:
        if reason := run.limit_reached or await _prepare(agent):
            return run.end(reason)
        try:
            reply = await _ask(agent, run)
        except BudgetSpent as error:
            return run.end("budget", error)
        except ModelError as error:
            overflow = PromptTooLong.read(error)
            if overflow is not None and await _recover(agent, run, overflow):
                continue
            return run.end("model_error" if overflow is None else "prompt_too_long", error)
        run.turns += 1
        for step in agent.pipeline.reply:
            step.on_reply(agent, reply)
        if reply.tool_calls:
            await _run_calls(agent, run, reply)
            await _answer(agent, run)
        elif reply.stop_reason == WINDOW_FULL and await _recover(agent, run, PromptTooLong()):
            agent.append_message("user", [text_block(render("compaction_cut"))])
            continue
        elif reply.stop_reason != "pause_turn" and (ending := await _ending(agent, run, reply)):
            return run.end(ending)
        run.has_recovered = False


async def _ending(agent: Agent, run: _Run, reply: Reply) -> EndReason | None:
    """Return the reason why the run ends with *reply*, or None if a `StopStep` added a message to continue with."""
    reason = _ENDS.get(reply.stop_reason, "completed")
    for step in agent.pipeline.stop if reason == "completed" else ():
        if blocks := await step.on_stop(agent, run.text):
            agent.append_message("user", blocks)
            return None
    return reason


async def _recover(agent: Agent, run: _Run, overflow: PromptTooLong) -> bool:
    """Shorten a conversation too long for the API, at most once per complete reply; return True if it is shorter."""
    if run.has_recovered:
        return False
    run.has_recovered = True
    for step in agent.pipeline.overflow:
        if await step.on_overflow(agent, overflow):
            return True
    return False


async def _prepare(agent: Agent) -> EndReason | None:
    for step in agent.pipeline.before_call:
        if reason := await step.before_call(agent):
            return reason
    await agent.make_durable("call")
    return None


async def _ask(agent: Agent, run: _Run) -> Reply:
    """Request and record the reply of one turn; repeat with a larger `max_tokens` if the reply was cut off."""
    for size in OUTPUT_SIZES:
        conversation, max_tokens = agent.conversation, min(size, agent.model.max_output)
        rendered = conversation.render(max_tokens=max_tokens, ttl=agent.ttl)
        request = agent.request(
            conversation,
            rendered,
            prompt_tokens=agent.meter.tokens(conversation),
            expected_read=agent.meter.cached(conversation),
            shared=conversation.shared_hash,
        )
        stream = TextStream(agent.turn, agent.emit)
        reply = await agent.client.ask(
            request, stream.feed, lambda error, wait: agent.emit(Retrying(error=str(error), seconds=wait))
        )
        conversation.sent(rendered)
        run.usage += reply.usage
        run.cost += agent.model.cost(reply.usage)
        run.text = reply.text
        is_last = reply.stop_reason != "max_tokens" or size == OUTPUT_SIZES[-1]
        _record_reply(agent, reply, max_tokens, is_taken=is_last)
        if is_last:
            break
    return reply


def _record_reply(agent: Agent, reply: Reply, max_tokens: int, *, is_taken: bool) -> None:
    """Write *reply* to the transcript. If *is_taken*, append its blocks that a request may contain to the conversation.

    *is_taken* is False for a reply that was cut off and will be requested again.
    """
    record = ReplyRecord(
        turn=agent.turn,
        message_id=reply.message_id,
        request_id=reply.request_id,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        cost_usd=format(agent.model.cost(reply.usage), "f"),
        max_tokens=max_tokens,
        seconds=round(reply.duration, 6),
        first_byte=round(reply.first_byte, 6),
        attempts=reply.attempts,
        is_taken=is_taken,
        lives=[] if agent.ttl == FIVE_MINUTES else list(attrs.astuple(agent.ttl)),
    )
    blocks = [block.data for block in reply.sendable]
    if is_taken and blocks:
        agent.append_message("assistant", blocks, record)
    else:
        agent.transcript.record(agent.conversation, record)
    agent.turn += is_taken
    agent.replied_at = agent.clock.now()
    agent.meter.resume(reply.usage, len(agent.conversation), agent.conversation.epoch)


async def _run_calls(agent: Agent, run: _Run, reply: Reply) -> None:
    """Run the tool calls of *reply*, in parallel where possible, and store their results in *run*."""
    run.calls, run.results = reply.tool_calls, dict.fromkeys(reply.unreadable_calls, UNREADABLE)
    run.tool_calls += len(run.calls)
    await agent.make_durable("effect")
    for batch in _batches(agent.tools, [call for call in run.calls if call["id"] not in run.results]):
        async with trio.open_nursery() as nursery:
            for call in batch:
                nursery.start_soon(_run_call, agent, run, call)


async def _run_call(agent: Agent, run: _Run, call: dict[str, Any]) -> None:
    began = trio.current_time()
    agent.emit(ToolStarted(id=call["id"], name=call["name"]))
    result = await agent.caller(agent, call)
    run.results[call["id"]] = result
    agent.emit(
        ToolEnded(
            id=call["id"],
            name=call["name"],
            is_error=result.is_error,
            seconds=round(trio.current_time() - began, 6),
            characters=len(result.text),
            reason=result.text.partition("\n")[0] if result.is_error else None,
        )
    )


def _batches(tools: Mapping[str, Tool], calls: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Group consecutive calls that may run at the same time: all only read, or all start agents. Others run alone."""
    batch: list[dict[str, Any]] = []
    together: Access | None = None
    for call in calls:
        tool = tools.get(call["name"])
        access = tool.access if tool is not None and tool.access in ("read", "spawn") else None
        if batch and (access is None or access != together or len(batch) == READERS):
            yield batch
            batch = []
        together = access
        batch.append(call)
    if batch:
        yield batch


async def _answer(agent: Agent, run: _Run) -> None:
    """Append one user message: the turn's tool results, after changes by the steps, and the blocks that steps add."""
    answers: Sequence[ToolAnswer] = [
        ToolAnswer(call=call, tool=agent.tools.get(call["name"]), result=run.results.get(call["id"], INTERRUPTED))
        for call in run.calls
    ]
    for step in agent.pipeline.tool_results:
        answers = await step.transform_results(agent, answers)
    results = [answer.result.block(answer.call["id"]) for answer in answers]
    added = [adding.add_blocks(agent, answers) for adding in agent.pipeline.new_message]
    state = agent.workspace_changes()
    blocks = (block for each in added for block in each.blocks)
    agent.append_message("user", [*results, *blocks], *state, *(record for each in added for record in each.records))
