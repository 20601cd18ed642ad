"""Run of one long session by the real loop on the embedded server, with one setup of layers."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import attrs

from benchmarks.long_session import LongSession
from benchmarks.package_calls import PACKAGES
from benchmarks.replayed_tools import definitions, session_tools
from benchmarks.sample_history import MODEL
from coterie.agents.events.agent_events import Event, ToolEnded
from coterie.agents.events.layer_events import CacheBroke, ResultsCleared, ResultsStored
from coterie.agents.layers.layer2_clearing import ClearByApi, api_clearing
from coterie.agents.loop.agent import Agent, Pipeline, ToolAnswer
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES, Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import arrange, context_steps, disabled_settings
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.prompts import render
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import Tool, Workspace, allow_all
from coterie.clock import Clock
from coterie.memory.layer_settings import LayersSettings
from coterie.orchestrator.processes.api_server_process import open_api_server

Kind = TypeVar("Kind", bound=Event)

MECHANISMS = ("stored", "time", "cache", "api")
"""Mechanisms of layers 1, 2a, 2b and 2c."""


@attrs.frozen(kw_only=True)
class Setup:
    """One setup of layers."""

    name: str
    layers: LayersSettings
    compact_window: int
    """Limit at which the API clears results. No agent stops there, so all setups do the same work."""
    follows_api: bool = True
    """True if content that the API has cleared is left out of later requests."""

    @property
    def mechanisms(self) -> list[str]:
        """Active mechanisms."""
        layers = self.layers
        works = (layers.results.enabled, layers.clearing.by_time, layers.clearing.by_cache, layers.clearing.by_api)
        return [name for name, does in zip(MECHANISMS, works, strict=True) if does]

    def header(self, tools: dict[str, Tool]) -> KeyHeader:
        """Key header from the first request on."""
        header = KeyHeader(model=MODEL)
        if self.layers.clearing.by_api:
            model = known_models().get(MODEL)
            thresholds = Thresholds.for_window(self.compact_window, model.max_output)
            header = api_clearing(header, model, thresholds, self.layers.clearing, tools)
        if self.layers.clearing.by_cache:
            header = attrs.evolve(header, betas=(*header.betas, known_models().betas["cache_edits"]))
        return header

    def pipeline(self, tools: dict[str, Tool], scratch: Path, waiting: "Waiting") -> Pipeline:
        """Pipeline of the agent, with simulated time."""
        pipeline = arrange(context_steps(self.layers, tools, scratch), disabled_settings(Settings(layers=self.layers)))
        calls = [step for step in pipeline.before_call if self.follows_api or not isinstance(step, ClearByApi)]
        return attrs.evolve(pipeline, tool_results=(waiting, *pipeline.tool_results), before_call=tuple(calls))


@attrs.frozen
class Waiting:
    """Advances the simulated time by the pauses of the session."""

    pauses: Sequence[float]

    def wait(self, agent: Agent) -> None:
        """Apply the pause after the last recorded reply."""
        agent.clock.advance(self.pauses[agent.turn - 2])

    async def transform_results(self, agent: Agent, answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """Return the results unchanged, after the duration of their calls."""
        self.wait(agent)
        return answers


@attrs.frozen(kw_only=True)
class Fired:
    """Effect of one mechanism."""

    times: int
    results: int
    tokens: int
    """Tokens removed; for stored results an estimate."""


@attrs.frozen(kw_only=True)
class SessionOutcome:
    """Outcome of a session."""

    setup: Setup
    requests: Sequence[dict[str, Any]]
    """Log of the server."""
    told: Sequence[tuple[int, Event]]
    """Events of the agent, each with the number of the next model call."""
    history: int
    """Bytes of the conversation at its end."""

    @property
    def tokens_sent(self) -> int:
        """Total tokens of the prompts of all requests."""
        return sum(map(self._prompt, self.requests))

    @property
    def cache_share(self) -> float:
        """Share of the prompt tokens that was read from the cache."""
        read: int = sum(entry["usage"]["cache_read_input_tokens"] for entry in self.requests)
        return read / self.tokens_sent

    @property
    def dollars(self) -> Decimal:
        """Dollars by the server's log."""
        return sum((Decimal(entry["cost_usd"]) for entry in self.requests), Decimal(0))

    @property
    def largest_prompt(self) -> int:
        """In tokens."""
        return max(map(self._prompt, self.requests))

    @property
    def result_sizes(self) -> list[int]:
        """Characters of each tool result, before any layer."""
        return sorted(event.characters for event in self.events(ToolEnded))

    def events(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of one kind."""
        return [event for _, event in self.told if isinstance(event, kind)]

    def breaks(self, *, is_expired: bool) -> list[CacheBroke]:
        """Unannounced cache misses: due to expiry, or for any other reason."""
        return [event for event in self.events(CacheBroke) if (event.cause == "expired") == is_expired]

    def fired(self, mechanism: str) -> Fired:
        """Return the effect of *mechanism*, one of `MECHANISMS`."""
        if mechanism == "stored":
            stored = self.events(ResultsStored)
            characters = sum(event.characters_before - event.characters_after for event in stored)
            results = sum(len(event.paths) for event in stored)
            return Fired(times=len(stored), results=results, tokens=characters // TEXT_BYTES)
        cleared = [event for event in self.events(ResultsCleared) if event.mechanism == mechanism]
        tokens = sum(event.tokens_before - event.tokens_after for event in cleared)
        return Fired(times=len(cleared), results=sum(event.results for event in cleared), tokens=tokens)

    @property
    def repeats(self) -> int:
        """How often the API cleared in two consecutive calls, and so broke the cache twice."""
        turns = [turn for turn, event in self.told if isinstance(event, ResultsCleared) and event.mechanism == "api"]
        return sum(later - earlier == 1 for earlier, later in pairwise(turns))

    @staticmethod
    def _prompt(entry: dict[str, Any]) -> int:
        keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return sum(entry["usage"][key] for key in keys)


async def run_session(session: LongSession, setup: Setup) -> SessionOutcome:
    """Run *session* to its end, with simulated time; its files are deleted."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        script = scratch / "script.yaml"
        script.write_text(session.script())
        clock = Clock(file=scratch / "clock")
        async with (
            open_api_server(script, "--clock", str(clock.file)) as server,
            open_model_client(LocalGateway(), base_url=server.url, api_key="benchmark") as client,
        ):
            with _open_agent(session, setup, client, clock, scratch) as agent:
                told: list[tuple[int, Event]] = []
                agent.emit = lambda event: told.append((agent.turn, event))
                await _converse(session, agent)
                history = len(agent.conversation.prefix_bytes())
            return SessionOutcome(setup=setup, requests=await server.requests(), told=told, history=history)


async def _converse(session: LongSession, agent: Agent) -> None:
    limits = RunLimits(turns=len(session.replies))
    for exchange in session.exchanges:
        agent.append_message("user", [text_block(exchange.prompt)])
        ended = await run_loop(agent, limits)
        assert ended.reason == "completed", ended
        Waiting(session.pauses).wait(agent)


@contextmanager
def _open_agent(
    session: LongSession, setup: Setup, client: ModelClient, clock: Clock, scratch: Path
) -> Iterator[Agent]:
    model = known_models().get(MODEL)
    tools = session_tools(session)
    with TranscriptWriter.open(scratch / "transcript.jsonl", clock) as transcript:
        yield Agent(
            identity=Identity(agent="main"),
            model=model,
            client=client,
            conversation=Conversation.begin(
                setup.header(tools), tools=definitions(tools), system=[text_block(render("agent"))]
            ),
            transcript=transcript,
            tools=tools,
            workspace=Workspace(root=PACKAGES, scratch=scratch),
            denial=allow_all,
            meter=WindowMeter(Thresholds.for_window(model.window, model.max_output)),
            build_pipeline=lambda _agent: setup.pipeline(tools, scratch, Waiting(session.pauses)),
            clock=clock,
            durability="never",
        )
