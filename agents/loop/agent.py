"""One agent: its conversation, its tools, and the steps around its model calls."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_log import discard_event
from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES, CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.request_body import RenderedRequest
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import (
    Addition,
    MailRecord,
    StateRecord,
    UnansweredMessage,
    UserTextRecord,
)
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.catalog import Model, Role
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.loop.run_result import EndReason
from coterie.agents.tools.tool import Denial, Tool, ToolResult, Workspace, call_tool
from coterie.clock import Clock

Durability = Literal["never", "turn", "always"]
"""When the transcript is synced to disk: never, before each model call, or also before each tool call."""


TURN_NUMBERED = ("turn", "refresh")
"""Purposes whose requests have the number of the agent's turn; those of other purposes are counted separately."""


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """The result of one tool call."""

    call: dict[str, Any]
    tool: Tool | None
    """None if the agent has no tool of this name."""
    result: ToolResult


@attrs.frozen(kw_only=True)
class AddedBlocks:
    """Blocks that a step adds to the next message, and the records written with them."""

    blocks: tuple[bytes, ...] = ()
    records: tuple[Addition, ...] = ()


NOTHING = AddedBlocks()
UNREADABLE = ToolResult(text="The input of this call is not valid JSON. Make the call again.", is_error=True)


class ResultStep(Protocol):
    """Step that sees all tool results of one turn before they enter the conversation.

    A helper runs this step too; *agent* is then the agent that the helper was forked from.
    """

    async def transform_results(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """Return the answers as they enter the conversation, in the same order."""


class MessageStep(Protocol):
    """Step that adds blocks to a message for the model, behind the tool results."""

    def add_blocks(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return the blocks to add; *answers* is empty if the message carries no tool results."""


class CallStep(Protocol):
    """Step that runs before each model call."""

    async def before_call(self, agent: "Agent") -> EndReason | None:
        """Prepare the call, or return the reason why the run must end instead."""


class OverflowStep(Protocol):
    """Step that shortens the conversation after the API rejected it as too long."""

    async def on_overflow(self, agent: "Agent", overflow: PromptTooLong) -> bool:
        """Shorten the conversation of *agent*; return True if it became shorter, so that the call can be retried."""


class ReplyStep(Protocol):
    """Step that sees each reply after it was recorded."""

    def on_reply(self, agent: "Agent", reply: Reply) -> None:
        """Process *reply*; never blocks."""


class StopStep(Protocol):
    """Step that runs when the model makes no more tool calls, and can keep the agent working."""

    async def on_stop(self, agent: "Agent", text: str) -> Sequence[bytes]:
        """Return blocks that make the agent continue, or none to let it stop; *text* is the text of the last reply."""


class EndStep(Protocol):
    """Step that starts background work after a turn loop has completed."""

    def on_run_finished(self) -> None:
        """Start the work; never blocks."""


class CompactedStep(Protocol):
    """Step that runs after a compaction of the conversation."""

    async def on_compacted(self, agent: "Agent", compacted: Compacted) -> None:
        """Handle the compaction that *compacted* reports."""


@attrs.frozen(kw_only=True)
class Pipeline:
    """The steps of one agent by hook, in the order in which they run. Created by `coterie.agents.loop.pipeline`."""

    tool_results: tuple[ResultStep, ...] = ()
    new_message: tuple[MessageStep, ...] = ()
    before_call: tuple[CallStep, ...] = ()
    overflow: tuple[OverflowStep, ...] = ()
    reply: tuple[ReplyStep, ...] = ()
    stop: tuple[StopStep, ...] = ()
    end: tuple[EndStep, ...] = ()
    compacted: tuple[CompactedStep, ...] = ()


Caller = Callable[["Agent", dict[str, Any]], Awaitable[ToolResult]]
"""Function that executes a tool call; the argument is its `tool_use` block. If cancelled, it leaves nothing running."""


async def call_without_hooks(agent: "Agent", call: dict[str, Any]) -> ToolResult:
    """Execute a tool call that only permissions can deny: the `Caller` of an agent without hooks."""
    return await call_tool(agent.tools, call["name"], call["input"], agent.workspace, agent.denial)


@attrs.define(eq=False, kw_only=True)
class Agent:
    """A live agent: its conversation, transcript, tools, model client and pipeline."""

    identity: Identity
    model: Model
    client: ModelClient
    conversation: Conversation
    transcript: TranscriptWriter
    tools: Mapping[str, Tool]
    workspace: Workspace
    denial: Denial
    caller: Caller = call_without_hooks
    meter: WindowMeter
    build_pipeline: Callable[["Agent"], Pipeline] = attrs.field(default=lambda _agent: Pipeline(), repr=False)
    """Creates the pipeline; called last, because many steps keep a reference to their agent."""
    pipeline: Pipeline = attrs.field(init=False)
    clock: Clock = attrs.field(factory=Clock)
    emit: Callable[[Event], None] = discard_event
    durability: Durability = "turn"
    ttl: CacheTtls = FIVE_MINUTES
    turn: int = 1
    """Number of the next model call; a retried call keeps its number."""
    replied_at: float | None = None
    """Time at which the last reply was recorded, in seconds since 1970."""
    announced: list[str] = attrs.field(factory=list)
    """Known reasons why the next reply will read less from the prompt cache."""
    user_texts: list[str] = attrs.field(factory=list)
    """Everything that the user wrote to the agent, its task included."""
    open_mail: dict[str, UnansweredMessage] = attrs.field(factory=dict)
    """Messages of other agents that expect an answer and have none yet, by id."""
    request_counts: Counter[str] = attrs.field(factory=Counter)
    """Number of model requests by purpose, turns excluded."""
    fork_of: str | None = None
    """Name of the agent that this agent was forked from; None if it is no fork."""
    inherited: int = 0
    """Number of segments that the fork inherited."""
    preface: tuple[bytes, ...] = ()
    """Blocks to put before the next message; see `add_preface`."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancel scope of the running turn loop."""

    def __attrs_post_init__(self) -> None:
        loaded = self.transcript.loaded
        self.user_texts += loaded.words
        self.open_mail |= loaded.open_mail
        if loaded.reply is None:
            own = self.conversation.prefix.messages(self.inherited)
            self.turn += sum(message.role == "assistant" for message in own)
        else:
            self.turn = loaded.reply.turn + loaded.reply.is_taken
            self.replied_at = loaded.reply.at
            if loaded.counted:
                self.meter.resume(loaded.reply.usage, loaded.counted, self.conversation.epoch)
        self.pipeline = self.build_pipeline(self)

    def add_preface(self, blocks: Iterable[bytes]) -> None:
        """Put *blocks* before the next message, behind blocks that were added earlier."""
        self.preface = (*self.preface, *blocks)

    def append_message(self, role: Role, blocks: Sequence[bytes], *also: Addition) -> None:
        """Append a message to the conversation; write it and the records *also* to the transcript. Raises `OSError`."""
        self.conversation.append(role, [*self.preface, *blocks])
        self.preface = ()
        self.apply_record(*also)
        self.transcript.record(self.conversation, *also)

    def apply_record(self, *records: Addition) -> None:
        """Update user texts and unanswered mail from *records*, which the caller writes to the transcript."""
        for record in records:
            match record:
                case UserTextRecord():
                    self.user_texts += record.texts
                case MailRecord():
                    self.open_mail = record.update(self.open_mail)
                case _:
                    pass

    def workspace_changes(self) -> tuple[StateRecord, ...]:
        """Return a record of the workspace changes since the last call, to be written with the next message."""
        change = self.workspace.changes()
        return () if change is None else (change,)

    async def make_durable(self, before: Literal["call", "effect"]) -> None:
        """Sync the transcript to disk if `durability` requires it *before* this point. Raises `OSError`."""
        if self.durability == "always" or (self.durability == "turn" and before == "call"):
            await trio.to_thread.run_sync(self.transcript.sync)

    def request(
        self,
        conversation: Conversation,
        rendered: RenderedRequest,
        *,
        prompt_tokens: int,
        expected_read: int | None = None,
        shared: bytes | None = None,
        purpose: str = "turn",
    ) -> ModelRequest:
        """Create the model request that sends *rendered*, a rendering of *conversation*, in the agent's name."""
        return ModelRequest(
            body=rendered.chunks,
            model=self.model,
            max_tokens=rendered.max_tokens,
            prompt_tokens=prompt_tokens,
            prefix=conversation.prefix_hash,
            expected_read=expected_read,
            shared=shared,
            ttl=self.ttl.longest,
            purpose=purpose,
            turn=self.turn if purpose in TURN_NUMBERED else self.request_counts[purpose] + 1,
            api_version=conversation.header.api_version,
            betas=conversation.header.betas,
            identity=self.identity,
        )

    @property
    def has_work(self) -> bool:
        """True if the conversation ends with a user message that the model has not answered."""
        last = self.conversation.prefix.last
        return last is not None and last.role == "user"

    def report_failure(self, layer: str, reason: object) -> None:
        """Emit the event that *layer* has failed, because of the error or text *reason*."""
        self.emit(LayerFailed(layer=layer, reason=str(reason)))

    def interrupt(self) -> None:
        """Cancel the running turn; the loop then records what it has and ends with the reason `cancelled`."""
        self.scope.cancel()
