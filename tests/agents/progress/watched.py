"""An agent at work in a test whose progress is told: it is looked at while its tool runs, when the test says so."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.agent import Agent
from coterie.agents.events import Event, LayerFailed, Progress
from coterie.agents.gate import LocalGate
from coterie.agents.loop import run_loop
from coterie.agents.models import load_models
from coterie.agents.outcome import Ended, Limits
from coterie.agents.progress import ImpatientGate, Summariser, open_summaries
from tests.agents.working import Noting, open_agent, watch
from tests.servers import Served

HAIKU = load_models().get("haiku")
NEVER = 3_600.0
"""Seconds between two looks, for tests that look themselves."""
PATIENCE = 0.05


def call(text: str = "x") -> dict[str, Any]:
    """A turn in which the agent calls its tool."""
    return {"text": f"I note {text}.", "tools": [{"Note": {"text": text}}]}


def words(text: str, **more: Any) -> dict[str, Any]:
    """What the small model says."""
    return {"purpose": "summary", "text": text, **more}


DONE = {"text": "done"}


@attrs.define(eq=False)
class Watched:
    """An agent, who watches it, what it told, and the server."""

    agent: Agent
    summariser: Summariser
    events: list[Event]
    served: Served

    async def work(self) -> Ended:
        """Run the agent's loop to its end."""
        return await run_loop(self.agent, Limits(turns=50))

    @property
    def progress(self) -> list[Progress]:
        """What it was at."""
        return [event for event in self.events if isinstance(event, Progress)]

    @property
    def failures(self) -> list[str]:
        """What went wrong."""
        return [event.reason for event in self.events if isinstance(event, LayerFailed) and event.layer == "progress"]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the small model was asked, as the server logged it."""
        return [entry for entry in self.served.requests if entry["purpose"] == "summary"]


@asynccontextmanager
async def open_watched(
    directory: Path,
    *script: dict[str, Any],
    look_at: Callable[[str], bool] = lambda _: True,
    result: str = "noted",
    gate: LocalGate | None = None,
    own_gate: LocalGate | None = None,
    every: float = NEVER,
    size: int | None = None,
    **options: Any,
) -> AsyncIterator[Watched]:
    """An agent that follows *script*; it is looked at in each call whose text *look_at* is true of.

    Summaries pass the agent's *gate*, or one of their own.
    """
    watched: Watched | None = None
    gate = gate or LocalGate()

    async def act(text: str) -> str:
        assert watched is not None
        if look_at(text):
            await watched.summariser.look()
        return f"{result} {text}"

    text = json.dumps({"default": list(script)})
    async with open_agent(text, directory, Noting(name="Note", act=act), gate=gate, **options) as (agent, served):
        client = agent.client.through(ImpatientGate(gate=own_gate or gate, patience=PATIENCE))
        async with open_summaries(agent, client, HAIKU, every=every, size=size) as summariser:
            watched = Watched(agent, summariser, watch(agent), served)
            yield watched
