"""Scripted agent whose progress is summarized while its tool runs."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.events.agent_events import Event, ProgressSummarized
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.progress.summarizer import ProgressSummarizer, TimeoutGateway
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.run_result import RunEnded, RunLimits
from tests.agents.opened_layers import open_summaries
from tests.agents.scripted_agent import NotingTool, open_agent, watch
from tests.embedded_server import Served

HAIKU = load_models().get("haiku")
NEVER = 3_600.0
"""Seconds between two summaries, for tests that call `summarize_once` themselves."""
PATIENCE = 0.05


def call(text: str = "x") -> dict[str, Any]:
    """A turn in which the agent calls its tool."""
    return {"text": f"I note {text}.", "tools": [{"Note": {"text": text}}]}


def summary_reply(text: str, **more: Any) -> dict[str, Any]:
    """Return a scripted reply of the small model."""
    return {"purpose": "summary", "text": text, **more}


DONE = {"text": "done"}


@attrs.define(eq=False)
class SummarizedAgent:
    """An agent with its summarizer, its events and the server."""

    agent: Agent
    summarizer: ProgressSummarizer
    events: list[Event]
    served: Served

    async def work(self) -> RunEnded:
        """Run the agent's loop to its end."""
        return await run_loop(self.agent, RunLimits(turns=50))

    @property
    def progress(self) -> list[ProgressSummarized]:
        """All emitted summaries."""
        return [event for event in self.events if isinstance(event, ProgressSummarized)]

    @property
    def failures(self) -> list[str]:
        """Reasons of all failed summaries."""
        return [event.reason for event in self.events if isinstance(event, LayerFailed) and event.layer == "progress"]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Requests to the small model from the server's log."""
        return [entry for entry in self.served.requests if entry["purpose"] == "summary"]


@asynccontextmanager
async def open_summarized_agent(
    directory: Path,
    *script: dict[str, Any],
    summarize_in: Callable[[str], bool] = lambda _: True,
    result: str = "noted",
    gate: LocalGateway | None = None,
    own_gate: LocalGateway | None = None,
    every: float = NEVER,
    size: int | None = None,
    **options: Any,
) -> AsyncIterator[SummarizedAgent]:
    """Open an agent that follows *script*; it is summarized during each call for whose text *summarize_in* is True.

    Summaries pass the agent's *gate*, or *own_gate*.
    """
    watched: SummarizedAgent | None = None
    gate = gate or LocalGateway()

    async def act(text: str) -> str:
        assert watched is not None
        if summarize_in(text):
            await watched.summarizer.summarize_once()
        return f"{result} {text}"

    text = json.dumps({"default": list(script)})
    async with open_agent(text, directory, NotingTool(name="Note", act=act), gate=gate, **options) as (agent, served):
        client = agent.client.with_gateway(TimeoutGateway(gate=own_gate or gate, timeout=PATIENCE))
        async with open_summaries(agent, client, HAIKU, every=every, size=size) as summarizer:
            watched = SummarizedAgent(agent, summarizer, watch(agent), served)
            yield watched
