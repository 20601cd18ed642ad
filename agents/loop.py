"""The turn loop of one agent: ask the model, record what it said, run its tools, record their results, repeat."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.conversation import Conversation, Role, TranscriptWriter
from coterie.agents.errors import ModelError, ModelRefusedRequest
from coterie.agents.model.client import ModelClient
from coterie.agents.model.reply import Reply, ReplyBlock
from coterie.agents.model.request import Identity, ModelRequest
from coterie.agents.models import Model
from coterie.agents.outcome import Ended, EndReason, ReplyArrived, Step, ToolEnded
from coterie.agents.permissions import Permissions
from coterie.agents.tokens import JSON_BYTES
from coterie.agents.tools.tool import Tool, ToolResult, Workspace, call_tool
from coterie.agents.usage import Usage

OUTPUT_SIZES = (8_000, 16_000, 32_000, 64_000)
"""What `max_tokens` is at first, and each time after a reply was cut by it."""
READERS = 10
"""Read-only tools that run at the same time."""
INTERRUPTED = "The run was interrupted before this call had a result. It may or may not have taken effect."

_ENDS: Mapping[str, EndReason] = {
    "refusal": "refused",
    "max_tokens": "cut_off",
    "model_context_window_exceeded": "prompt_too_long",
}
"""Stop reasons that end the loop although the model had more to say."""


@attrs.define(eq=False)
class Agent:
    """One agent at work: its conversation, the record of it, and what it may use."""

    identity: Identity
    model: Model
    client: ModelClient
    conversation: Conversation
    transcript: TranscriptWriter
    tools: Mapping[str, Tool]
    workspace: Workspace
    permissions: Permissions
    tell: Callable[[Step], None] = lambda _: None

    def say(self, role: Role, blocks: Sequence[bytes]) -> None:
        """Append a message and record it. Raises `OSError` when it cannot be recorded."""
        self.conversation.append(role, blocks)
        self.transcript.record(self.conversation)


@attrs.define(eq=False)
class _Tally:
    """What a run of the loop has used so far."""

    model: Model
    turns: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    text: str = ""

    def count(self, reply: Reply) -> None:
        self.usage += reply.usage
        self.cost += self.model.cost(reply.usage)
        self.text = reply.text

    def end(self, reason: EndReason, error: ModelError | None = None) -> Ended:
        return Ended(reason=reason, text=self.text, turns=self.turns, usage=self.usage, cost=self.cost, error=error)


async def run_loop(agent: Agent, *, max_turns: int) -> Ended:
    """Work on what the conversation asks for until the model has no more calls to make.

    A message is recorded before what follows from it happens: the model's calls before they run, their results
    before the model sees them. Cancellation, or a crash, between the two leaves open calls, which `close_open_calls`
    answers when the agent is taken up again. Raises `ReplyMalformed`, and `OSError` when nothing can be recorded.
    """
    tally = _Tally(agent.model)
    while tally.turns < max_turns:
        tally.turns += 1
        try:
            reply = await _ask(agent, tally)
        except ModelError as error:
            return tally.end("prompt_too_long" if _is_too_long(error) else "model_error", error)
        _take(agent, reply)
        if reply.tool_calls:
            agent.say("user", await _run_calls(agent, reply.tool_calls))
        elif reply.stop_reason != "pause_turn":
            return tally.end(_ENDS.get(reply.stop_reason, "completed"))
    return tally.end("max_turns")


def close_open_calls(agent: Agent) -> int:
    """Answer the calls that a crash left open with an error, never by running them again; returns how many."""
    open_calls = agent.conversation.open_tool_uses
    if open_calls:
        result = ToolResult(text=INTERRUPTED, is_error=True)
        agent.say("user", [_result_block(call, result) for call in open_calls])
    return len(open_calls)


async def _ask(agent: Agent, tally: _Tally) -> Reply:
    """One turn's reply; one that was cut off is asked for again with more room."""
    turn = 1 + sum(message.role == "assistant" for message in agent.conversation.messages)
    for size in OUTPUT_SIZES:
        rendered = agent.conversation.render(max_tokens=min(size, agent.model.max_output))
        request = ModelRequest(
            body=rendered.chunks,
            model=agent.model,
            max_tokens=min(size, agent.model.max_output),
            prompt_tokens=rendered.size // JSON_BYTES,
            prefix=agent.conversation.prefix_hash,
            turn=turn,
            api_version=agent.conversation.header.api_version,
            betas=agent.conversation.header.betas,
            identity=agent.identity,
        )
        reply = await agent.client.ask(request)
        agent.conversation.sent(rendered)
        tally.count(reply)
        agent.tell(ReplyArrived(turn=turn, reply=reply, cost=agent.model.cost(reply.usage)))
        if reply.stop_reason != "max_tokens":
            break
    return reply


def _take(agent: Agent, reply: Reply) -> None:
    """Put the reply into the conversation, without what the API would not take back."""
    blocks = [block.data for block in reply.blocks if block.is_whole and not _is_empty_text(block)]
    if blocks:
        agent.say("assistant", blocks)


def _is_empty_text(block: ReplyBlock) -> bool:
    return block.type == "text" and not block.value["text"]


def _is_too_long(error: ModelError) -> bool:
    return isinstance(error, ModelRefusedRequest) and error.message.startswith("prompt is too long")


async def _run_calls(agent: Agent, calls: Sequence[dict[str, Any]]) -> list[bytes]:
    """Run the calls of one turn; results come in the order of the calls."""
    results: dict[str, ToolResult] = {}

    async def run(call: dict[str, Any]) -> None:
        began = trio.current_time()
        result = await call_tool(agent.tools, call["name"], call["input"], agent.workspace, agent.permissions.denial)
        results[call["id"]] = result
        agent.tell(ToolEnded(call=call, result=result, seconds=trio.current_time() - began))

    for batch in _batches(agent.tools, calls):
        async with trio.open_nursery() as nursery:
            for call in batch:
                nursery.start_soon(run, call)
    return [_result_block(call["id"], results[call["id"]]) for call in calls]


def _batches(tools: Mapping[str, Tool], calls: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Calls that may run together: neighbours that only read, a few at a time; all others alone."""
    batch: list[dict[str, Any]] = []
    for call in calls:
        tool = tools.get(call["name"])
        if tool is not None and tool.access == "read" and len(batch) < READERS:
            batch.append(call)
            continue
        if batch:
            yield batch
        batch = []
        if tool is not None and tool.access == "read":
            batch.append(call)
        else:
            yield [call]
    if batch:
        yield batch


def _result_block(tool_use_id: str, result: ToolResult) -> bytes:
    content = [{"type": "text", "text": result.text or "(no output)"}]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return msgspec.json.encode({**block, "is_error": True} if result.is_error else block)
