"""One agent: its conversation, its tools, and the steps around its model calls."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_log import discard_event
from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES, CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
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
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.run_result import EndReason
from coterie.agents.tools.tool import Denial, Tool, ToolResult, Workspace, call_tool
from coterie.clock import Clock

Durability = Literal["never", "turn", "always"]
"""When a transcript must survive a power cut: never, before each model call, or also before each effect."""


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """The result of one call."""

    call: dict[str, Any]
    tool: Tool | None
    """None if there is no such tool."""
    result: ToolResult


@attrs.frozen(kw_only=True)
class AddedBlocks:
    """What a step has to say, and what is to be recorded with it."""

    blocks: tuple[bytes, ...] = ()
    records: tuple[Addition, ...] = ()


NOTHING = AddedBlocks()


class ResultStep(Protocol):
    """Looks at all results of one turn before they enter the conversation.

    A helper runs it too, with the agent whose conversation the helper's begins with.
    """

    async def transform_results(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """The answers as they are to enter it, in the same order."""
        ...


class MessageStep(Protocol):
    """Has something to say to the model along with the results of its calls."""

    def add_blocks(self, agent: "Agent", answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """What is to stand behind the results; *answers* is empty when there are none."""
        ...


class CallStep(Protocol):
    """Looks at the conversation before each model call."""

    async def before_call(self, agent: "Agent") -> EndReason | None:
        """Make room, or say why the run must end instead."""
        ...


class OverflowStep(Protocol):
    """Makes room when the API finds the conversation too long."""

    async def on_overflow(self, agent: "Agent", overflow: PromptTooLong) -> bool:
        """Whether it is shorter now, so that the call can be made again."""
        ...


class ReplyStep(Protocol):
    """Looks at each reply once it is recorded."""

    def on_reply(self, agent: "Agent", reply: Reply) -> None:
        """Draw conclusions."""
        ...


class StopStep(Protocol):
    """Is asked when the model has no more calls to make."""

    async def on_stop(self, agent: "Agent", text: str) -> Sequence[bytes]:
        """Blocks that make the agent continue; none let it stop. *text* is the text of the last reply."""
        ...


class EndStep(Protocol):
    """Starts background work after a turn loop has completed."""

    def on_run_finished(self) -> None:
        """Start the work; never blocks."""
        ...


class CompactedStep(Protocol):
    """Adapts to a conversation that was compacted."""

    async def on_compacted(self, agent: "Agent", compacted: Compacted) -> None:
        """Handle the compaction that *compacted* reports."""
        ...


@attrs.frozen(kw_only=True)
class Pipeline:
    """The steps of one agent, per hook in the order in which they run. Made by `coterie.agents.loop.pipeline`."""

    tool_results: tuple[ResultStep, ...] = ()
    new_message: tuple[MessageStep, ...] = ()
    before_call: tuple[CallStep, ...] = ()
    overflow: tuple[OverflowStep, ...] = ()
    reply: tuple[ReplyStep, ...] = ()
    stop: tuple[StopStep, ...] = ()
    end: tuple[EndStep, ...] = ()
    compacted: tuple[CompactedStep, ...] = ()


Caller = Callable[["Agent", dict[str, Any]], Awaitable[ToolResult]]
"""Answers one call of the model's, given as its block. When cancelled it leaves nothing running."""


async def call_without_hooks(agent: "Agent", call: dict[str, Any]) -> ToolResult:
    """The `Caller` of an agent whose permissions alone decide."""
    return await call_tool(agent.tools, call["name"], call["input"], agent.workspace, agent.denial)


@attrs.define(eq=False, kw_only=True)
class Agent:
    """One agent at work: its conversation, the record of it, and what it may use."""

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
    """Makes the pipeline once everything else of the agent is complete: many steps work on their agent."""
    pipeline: Pipeline = attrs.field(init=False)
    clock: Clock = attrs.field(factory=Clock)
    emit: Callable[[Event], None] = discard_event
    durability: Durability = "turn"
    ttl: CacheTtls = FIVE_MINUTES
    turn: int = 1
    """The number of the next model call; a call that is made again keeps its number."""
    replied_at: float | None = None
    """When the last reply was recorded."""
    announced: list[str] = attrs.field(factory=list)
    """What is known to make the next reply read less from the cache."""
    user_texts: list[str] = attrs.field(factory=list)
    """All that the human has said to it, and its task."""
    open_mail: dict[str, UnansweredMessage] = attrs.field(factory=dict)
    """What others wrote to it, want an answer to, and have none, by id."""
    request_counts: Counter[str] = attrs.field(factory=Counter)
    """How many requests of each purpose but its turns it has made."""
    fork_of: str | None = None
    """The agent whose conversation it began with; None for one that began with its own."""
    inherited: int = 0
    """How many segments that were."""
    preface: tuple[bytes, ...] = ()
    """Blocks that the next message begins with; see `add_preface`."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Around the run of its loop."""

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
        """Let the next message begin with *blocks*, after those added before."""
        self.preface = (*self.preface, *blocks)

    def append_message(self, role: Role, blocks: Sequence[bytes], *also: Addition) -> None:
        """Append a message and record it. Raises `OSError` when it cannot be recorded."""
        self.conversation.append(role, [*self.preface, *blocks])
        self.preface = ()
        self.apply_record(*also)
        self.transcript.record(self.conversation, *also)

    def apply_record(self, *records: Addition) -> None:
        """Keep in mind what *records* say that must not be forgotten; they are, or are about to be, recorded."""
        for record in records:
            match record:
                case UserTextRecord():
                    self.user_texts += record.texts
                case MailRecord():
                    self.open_mail = record.update(self.open_mail)
                case _:
                    pass

    def workspace_changes(self) -> tuple[StateRecord, ...]:
        """What has changed in the workspace since this was last asked, to be recorded with the next message."""
        change = self.workspace.changes()
        if change is None:
            return ()
        return (StateRecord(seen=dict(change.seen), directory=change.directory, skills=list(change.skills)),)

    async def make_durable(self, before: Literal["call", "effect"]) -> None:
        """Return once all that is recorded survives a power cut, if that is wanted *before* this. Raises `OSError`."""
        if self.durability == "always" or (self.durability == "turn" and before == "call"):
            await trio.to_thread.run_sync(self.transcript.sync)

    def interrupt(self) -> None:
        """End the turn that is under way; the run of the loop then ends as cancelled, with everything recorded."""
        self.scope.cancel()
