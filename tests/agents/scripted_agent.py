"""Scripted agent with real HTTP to the embedded server, real files, and tools of the test."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from coterie.agents.errors import BudgetSpent
from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer2_clearing import api_clearing
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import Model, load_models
from coterie.agents.loop.model.client import ModelClient, RetryPolicy, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway, Permit
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.tools.tool import (
    RESULT_CAP,
    Access,
    Denial,
    Tool,
    ToolResult,
    Workspace,
    allow_all,
    tool_definition,
)
from coterie.memory.layer_settings import LayersSettings
from tests.agents.opened_layers import build_pipeline
from tests.embedded_server import Served, open_served

E = TypeVar("E", bound=Event)
MODEL = load_models().get("claude-opus-5-5")
QUICK = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.001)


@attrs.frozen(kw_only=True)
class NoteInput:
    """Arguments of the test's tools."""

    text: str = ""


@attrs.frozen(kw_only=True)
class NotingTool(Tool):
    """Tool that calls a function of the test."""

    name: str
    act: Callable[[str], Any] = str
    access: Access = "read"
    is_clearable: bool = True
    result_cap: int | None = RESULT_CAP
    description: str = "Takes a note."
    input_type: type[attrs.AttrsInstance] = NoteInput

    async def run(self, arguments: NoteInput, _workspace: Workspace) -> ToolResult:
        """Return the result of the test's function."""
        result = self.act(arguments.text)
        if hasattr(result, "__await__"):
            result = await result
        return ToolResult(text=str(result))


def build_agent(
    transcript: TranscriptWriter,
    client: ModelClient,
    directory: Path,
    *tools: Tool,
    name: str = "main",
    model: Model = MODEL,
    header: KeyHeader | None = None,
    system: Sequence[bytes] = (),
    thresholds: Thresholds | None = None,
    **facts: Any,
) -> Agent:
    """Build a new agent, or the one whose transcript this is; *facts* are further fields of `Agent`."""
    definitions = [tool_definition(tool) for tool in tools]
    return Agent(
        identity=Identity(agent=name),
        model=model,
        client=client,
        conversation=transcript.loaded.conversation
        or Conversation.begin(header or KeyHeader(model=model.id), tools=definitions, system=system),
        transcript=transcript,
        tools={tool.name: tool for tool in tools},
        workspace=Workspace(root=directory, scratch=directory),
        meter=WindowMeter(thresholds or Thresholds.for_window(model.window, model.max_output)),
        durability="never",
        **{"denial": allow_all, **facts},
    )


@asynccontextmanager
async def open_agent(
    script: str,
    directory: Path,
    *tools: Tool,
    denial: Denial = allow_all,
    model: str = "claude-opus-5-5",
    layers: LayersSettings | None = None,
    gate: LocalGateway | None = None,
    window: int | None = None,
    compact: CompactionStep | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Agent, Served]]:
    """Open a new agent with a task, or resume the one whose transcript is in *directory*.

    With *layers* the agent has their pipeline. It uses the server's clock.
    """
    with trio.fail_after(30):
        async with (
            open_served(script, **options) as served,
            open_model_client(gate or LocalGateway(), base_url=served.url, api_key="k", policy=QUICK) as client,
        ):
            chosen = (options.get("models") or load_models()).get(model)
            thresholds = Thresholds.for_window(window or max(chosen.window, 200_000), chosen.max_output)
            by_name = {tool.name: tool for tool in tools}
            header = KeyHeader(model=model)
            if layers is not None and layers.clearing.by_api:
                header = api_clearing(header, chosen, thresholds, layers.clearing, by_name)
            if layers is not None and layers.clearing.by_cache:
                header = attrs.evolve(header, betas=(*header.betas, load_models().betas["cache_edits"]))
            with TranscriptWriter.open(directory / "transcript.jsonl", served.clock) as transcript:
                facts: dict[str, Any] = {"denial": denial, "clock": served.clock, "thresholds": thresholds}
                agent = build_agent(transcript, client, directory, *tools, model=chosen, header=header, **facts)
                if layers is not None:
                    agent.pipeline = build_pipeline(layers, dict(by_name), directory, compact)
                if transcript.loaded.conversation is None:
                    agent.append_message("user", [text_block("the task")], UserTextRecord(texts=["the task"]))
                yield agent, served


@contextmanager
def open_resumed_agent(
    agent: Agent, path: Path, layers: LayersSettings | None = None, compact: CompactionStep | None = None
) -> Iterator[Agent]:
    """Resume the agent whose transcript is at *path*, with the model, tools and files of *agent*.

    The server is the same, so it still knows which thinking belongs to which call.
    """
    with TranscriptWriter.open(path, agent.clock) as transcript:
        assert transcript.loaded.conversation is not None
        again = build_agent(
            transcript,
            agent.client,
            agent.workspace.root,
            *agent.tools.values(),
            model=agent.model,
            thresholds=agent.meter.thresholds,
            denial=agent.denial,
            clock=agent.clock,
        )
        if layers is not None:
            again.pipeline = build_pipeline(layers, dict(agent.tools), agent.workspace.scratch, compact)
        yield again


@attrs.define(eq=False)
class SpentGateway(LocalGateway):
    """Gateway that refuses calls of one purpose as too expensive."""

    refused: str = ""

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `LocalGateway.admit`, except for the refused purpose."""
        if intent.purpose == self.refused:
            raise BudgetSpent(budget=Decimal(1), spent=Decimal(1), reserve=intent.reserve)
        async with LocalGateway.admit(self, intent) as permit:
            yield permit


@attrs.frozen(kw_only=True)
class ObservedAgent:
    """A scripted agent with its events and the server."""

    agent: Agent
    events: list[Event]
    served: Served

    async def run(self, words: str | None = None, text: str | None = None) -> RunEnded:
        """Run the loop, after a user message if *words* are given; it must complete, with *text* if given."""
        if words is not None:
            self.agent.append_message("user", [text_block(words)])
        ended = await run_loop(self.agent, RunLimits(turns=400))
        assert ended.reason == "completed", ended.error
        assert text in (None, ended.text)
        return ended

    def of_type(self, event_type: type[E]) -> list[E]:
        return of_type(self.events, event_type)

    @property
    def failures(self) -> list[str]:
        """Reasons of the failures of layers."""
        return [event.reason for event in self.of_type(LayerFailed)]

    @property
    def statuses(self) -> list[int]:
        """HTTP statuses of all replies."""
        return [entry["status"] for entry in self.served.requests]

    def requests(self, purpose: str) -> list[dict[str, Any]]:
        """Return the server's log entries for *purpose*."""
        return [entry for entry in self.served.requests if entry["purpose"] == purpose]


def of_type(events: list[Event], event_type: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, event_type)]


def watch(agent: Agent) -> list[Event]:
    """Return a list that collects the agent's events from now on."""
    events: list[Event] = []
    agent.emit = events.append
    return events
