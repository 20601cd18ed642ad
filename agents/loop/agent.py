"""An agent as the turn loop uses it, and the protocols of its steps: code that runs around each model call."""

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
"""Moments at which a transcript file is synced to disk. turn: before model calls; always: also before tool calls."""


TURN_NUMBERED = ("turn", "refresh")
"""Purposes of model requests that carry the agent's turn number. For any other purpose, requests are counted from 1."""


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """One tool call of the model with its result, as it passes through the pipeline steps."""

    call: dict[str, Any]
    tool: Tool | None
    """The tool that the call names; None if the agent has no tool of this name."""
    result: ToolResult


@attrs.frozen(kw_only=True)
class AddedBlocks:
    """Content blocks that a pipeline step adds to the next user message, and the transcript records written with it."""

    blocks: tuple[bytes, ...] = ()
    records: tuple[Addition, ...] = ()


NOTHING = AddedBlocks()
UNREADABLE = ToolResult(text="The input of this call is not valid JSON. Make the call again.", is_error=True)


class ResultStep(Protocol):
    """Pipeline step that can change the tool results of one turn before they enter the conversation.

    It also runs for a helper (a background continuation of the conversation); *agent* is then the helper's agent.
    """

    async def transform_results(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """Return *answers* in the same order, with each result as the model is to see it, e.g. shortened."""


class MessageStep(Protocol):
    """Pipeline step that adds blocks, such as received mail, to the next user message after its tool results."""

    def add_blocks(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return the blocks to add and their records. *answers* is empty if the message contains no tool results."""


class CallStep(Protocol):
    """Pipeline step that runs before each model call of the turn loop, and may end the run instead."""

    async def before_call(self, agent: "Agent") -> EndReason | None:
        """Prepare the model call and return None. If the run must end without the call, return the reason."""


class OverflowStep(Protocol):
    """Pipeline step that shortens the conversation after the API reported that it does not fit into a request."""

    async def on_overflow(self, agent: "Agent", overflow: PromptTooLong) -> bool:
        """Shorten the conversation of *agent*; return True if it became shorter, so that the call can be retried."""


class ReplyStep(Protocol):
    """Pipeline step that processes each model reply after the reply was written to the transcript."""

    def on_reply(self, agent: "Agent", reply: Reply) -> None:
        """Process *reply*, for example emit an event. Must not block, because the tool calls of *reply* wait for it."""


class StopStep(Protocol):
    """Pipeline step that runs when the model makes no more tool calls. It can make the agent continue."""

    async def on_stop(self, agent: "Agent", text: str) -> Sequence[bytes]:
        """Return blocks of a user message to continue with, or no blocks to end the run. *text* is the last reply."""


class EndStep(Protocol):
    """Pipeline step that starts background work, such as saving memories, after a run of the turn loop."""

    def on_run_finished(self) -> None:
        """Start the background work if it is due, and return without waiting for it."""


class CompactedStep(Protocol):
    """Pipeline step that runs after a compaction, which replaced older messages of the conversation by a summary."""

    async def on_compacted(self, agent: "Agent", compacted: Compacted) -> None:
        """Do what the step needs after the compaction that *compacted* reports, e.g. run a hook or reset its state."""


@attrs.frozen(kw_only=True)
class Pipeline:
    """The steps of one agent by hook (the moment at which they run), in order. Created by `loop.pipeline.arrange`."""

    tool_results: tuple[ResultStep, ...] = ()
    new_message: tuple[MessageStep, ...] = ()
    before_call: tuple[CallStep, ...] = ()
    overflow: tuple[OverflowStep, ...] = ()
    reply: tuple[ReplyStep, ...] = ()
    stop: tuple[StopStep, ...] = ()
    end: tuple[EndStep, ...] = ()
    compacted: tuple[CompactedStep, ...] = ()


Caller = Callable[["Agent", dict[str, Any]], Awaitable[ToolResult]]
"""Function that executes a tool call, given as parsed `tool_use` block. If cancelled, it stops all that it started."""


async def call_without_hooks(agent: "Agent", call: dict[str, Any]) -> ToolResult:
    """Execute *call*, unless the agent's permissions deny it. Runs no hooks; the default `caller` of an agent."""
    return await call_tool(agent.tools, call["name"], call["input"], agent.workspace, agent.denial)


@attrs.define(eq=False, kw_only=True)
class Agent:
    """An agent that runs in this process: its conversation, transcript, tools, model client and pipeline steps."""

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
    """Creates the pipeline. The constructor calls it last, because many steps keep a reference to the agent."""
    pipeline: Pipeline = attrs.field(init=False)
    clock: Clock = attrs.field(factory=Clock)
    emit: Callable[[Event], None] = discard_event
    durability: Durability = "turn"
    ttl: CacheTtls = FIVE_MINUTES
    turn: int = 1
    """Number of the next turn (one model call with its tool calls), from 1. A retried call keeps its number."""
    replied_at: float | None = None
    """Time of the last recorded reply, or start of a later refresh call, in seconds since 1970; None before a reply."""
    announced: list[str] = attrs.field(factory=list)
    """Known reasons, such as a compaction, why the next reply will miss the prompt cache; such misses emit no event."""
    user_texts: list[str] = attrs.field(factory=list)
    """The agent's task and all texts that the user wrote to it, oldest first. A compaction shortens only long ones."""
    open_mail: dict[str, UnansweredMessage] = attrs.field(factory=dict)
    """Received messages that need an answer and have none yet, by message id."""
    request_counts: Counter[str] = attrs.field(factory=Counter)
    """Number of model requests so far by purpose, such as session notes; requests of the agent's turns are excluded."""
    fork_of: str | None = None
    """Name of the parent with whose conversation this agent started; None if the agent is not a fork."""
    inherited: int = 0
    """Number of segments (conversation blocks) that a fork inherited from its parent; 0 if the agent is not a fork."""
    preface: tuple[bytes, ...] = ()
    """Content blocks, collected by `add_preface`, with which the next message will begin."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancel scope of the running turn loop, which `interrupt` cancels."""

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
        """Collect *blocks* with which the next message will begin, behind blocks that were collected before."""
        self.preface = (*self.preface, *blocks)

    def append_message(self, role: Role, blocks: Sequence[bytes], *also: Addition) -> None:
        """Append `preface` and *blocks* as one message; write it and *also* to the transcript. Raises `OSError`."""
        self.conversation.append(role, [*self.preface, *blocks])
        self.preface = ()
        self.apply_record(*also)
        self.transcript.record(self.conversation, *also)

    def apply_record(self, *records: Addition) -> None:
        """Update `user_texts` and `open_mail` from *records*. The caller writes the records to the transcript."""
        for record in records:
            match record:
                case UserTextRecord():
                    self.user_texts += record.texts
                case MailRecord():
                    self.open_mail = record.update(self.open_mail)
                case _:
                    pass

    def workspace_changes(self) -> tuple[StateRecord, ...]:
        """Return a transcript record of tool state, e.g. files read, that changed since the last call, or nothing."""
        change = self.workspace.changes()
        return () if change is None else (change,)

    async def make_durable(self, before: Literal["call", "effect"]) -> None:
        """Sync the transcript to disk if `durability` requires it *before* a model call or a tool. Raises `OSError`."""
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
        """Create the model request for *rendered*, the bytes of *conversation*; see `CallFacts` for other arguments."""
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
        """Emit the event that an optional part of the agent, such as "mail" or "notes", failed for *reason*."""
        self.emit(LayerFailed(layer=layer, reason=str(reason)))

    def interrupt(self) -> None:
        """Cancel the running turn loop. It records the tool results that exist and ends with the reason `cancelled`."""
        self.scope.cancel()
