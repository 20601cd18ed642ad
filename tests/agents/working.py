"""An agent at work in a test: real HTTP to the embedded server, real files, tools of the test's own."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.step import CompactContext
from coterie.agents.conversation import Conversation, KeyHeader, TranscriptWriter, text_block
from coterie.agents.conversation.records import WordsRecord
from coterie.agents.events import Event
from coterie.agents.gate import LocalGate
from coterie.agents.layers.clearing import api_clearing
from coterie.agents.model.client import open_model_client
from coterie.agents.model.request import Identity
from coterie.agents.model.retry import RetryPolicy
from coterie.agents.models import load_models
from coterie.agents.pipeline import LayerSettings, layered_pipeline
from coterie.agents.tokens import Thresholds
from coterie.agents.tools.tool import RESULT_CAP, Access, Denial, Tool, ToolResult, Workspace, definition, permit
from coterie.agents.window import WindowMeter
from tests.servers import Served, open_served

QUICK = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.001)


@attrs.frozen(kw_only=True)
class Note:
    """What the test's tools are called with."""

    text: str = ""


@attrs.frozen(kw_only=True)
class Noting:
    """A tool that does what the test says."""

    name: str
    act: Callable[[str], Any] = str
    access: Access = "read"
    is_clearable: bool = True
    result_cap: int | None = RESULT_CAP
    description: str = "Takes a note."
    input_type: type[attrs.AttrsInstance] = Note

    def touches(self, _arguments: Note, _workspace: Workspace) -> Iterable[Path]:
        """It names no path."""
        return ()

    async def run(self, arguments: Note, _workspace: Workspace) -> ToolResult:
        """Give back what the test's function gives."""
        result = self.act(arguments.text)
        if hasattr(result, "__await__"):
            result = await result
        return ToolResult(text=str(result))


@asynccontextmanager
async def open_agent(
    script: str,
    directory: Path,
    *tools: Tool,
    denial: Denial = permit,
    model: str = "claude-opus-5-5",
    layers: LayerSettings | None = None,
    gate: LocalGate | None = None,
    window: int | None = None,
    compact: CompactContext | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Agent, Served]]:
    """An agent with a task, or the one whose transcript is in *directory*; with *layers* it has their pipeline.

    Its clock is the server's.
    """
    with trio.fail_after(30):
        async with (
            open_served(script, **options) as served,
            open_model_client(gate or LocalGate(), base_url=served.url, api_key="k", policy=QUICK) as client,
        ):
            chosen = (options.get("models") or load_models()).get(model)
            thresholds = Thresholds.for_window(window or max(chosen.window, 200_000), chosen.max_output)
            by_name = {tool.name: tool for tool in tools}
            header = KeyHeader(model=model)
            if layers is not None and layers.clears_by_api:
                header = api_clearing(header, chosen, thresholds, layers.clearing, by_name)
            if layers is not None and layers.clears_by_cache:
                header = attrs.evolve(header, betas=(*header.betas, load_models().betas["cache_edits"]))
            with TranscriptWriter.open(directory / "transcript.jsonl", served.clock) as transcript:
                begun = transcript.loaded.conversation
                agent = Agent(
                    identity=Identity(agent="main"),
                    model=chosen,
                    client=client,
                    conversation=begun or Conversation.begin(header, tools=[definition(tool) for tool in tools]),
                    transcript=transcript,
                    tools=by_name,
                    workspace=Workspace(root=directory, scratch=directory),
                    denial=denial,
                    meter=WindowMeter(thresholds),
                    clock=served.clock,
                    durability="never",
                )
                if layers is not None:
                    agent.pipeline = layered_pipeline(layers, dict(by_name), directory, compact)
                if begun is None:
                    agent.say("user", [text_block("the task")], WordsRecord(texts=["the task"]))
                yield agent, served


def watch(agent: Agent) -> list[Event]:
    """The events that the agent tells from now on."""
    events: list[Event] = []
    agent.tell = events.append
    return events
