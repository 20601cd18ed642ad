"""A parent agent that starts forks, with one gate, real HTTP and the recorded request bodies."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from benchmarks.forked_agent import fork_agent
from coterie.agents.events.agent_events import Event
from coterie.agents.layers.prompt_cache.break_detection import ForkSharingCheck
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.forks.fork import create_fork_point
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import Steps, arrange
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.tools.tool import Workspace
from coterie.orchestrator.gateway.admission import ModelGateway
from tests.agents.scripted_agent import QUICK, NotingTool, build_agent
from tests.embedded_server import Served, open_served

MODEL = known_models().get("claude-opus-5-5")
FORK = {"text": "Looked.", "times": "always", "delay": 0.03}
"""Reply of a fork, delayed so that its siblings have sent their requests too unless the gateway blocks them."""


def code(_text: str) -> str:
    """Return a tool result of 10,000 characters."""
    return "code\n" * 2_000


@attrs.define(eq=False)
class Family:
    """A parent agent and everything that its forks need."""

    parent: Agent
    served: Served
    gate: ModelGateway
    directory: Path
    events: dict[str, list[Event]] = attrs.field(factory=dict)
    forks: list[Agent] = attrs.field(factory=list)
    created_point: ForkPoint | None = None

    @property
    def point(self) -> ForkPoint:
        """The fork point, which must have been created."""
        assert self.created_point is not None
        return self.created_point

    async def fork(self, number: int, point: ForkPoint) -> RunEnded:
        name = f"fork-{number}"
        events = self.events.setdefault(name, [])
        async with self.gate.open_client(name, parent="main") as asker:
            with TranscriptWriter.open(self.directory / f"{name}.jsonl", self.served.clock) as transcript:
                fork = fork_agent(
                    self.parent,
                    point,
                    f"Look at part {number}.",
                    transcript=transcript,
                    workspace=Workspace(root=self.directory, scratch=self.directory),
                    build_pipeline=lambda _agent: arrange(Steps(fork_sharing=ForkSharingCheck(point)), role="fork"),
                    identity=Identity(agent=name),
                    client=self.parent.client.with_gateway(asker),
                    emit=events.append,
                )
                self.forks.append(fork)
                return await run_loop(fork, RunLimits(turns=5))

    async def fork_many(self, count: int) -> None:
        """Create the fork point and run forks 1 to *count* of it at the same time."""
        self.created_point = create_fork_point(self.parent)
        async with trio.open_nursery() as nursery:
            for number in range(1, count + 1):
                nursery.start_soon(self.fork, number, self.point)

    def bodies(self, agent: str) -> list[bytes]:
        """Return the bytes of *agent*'s requests."""
        return [each.body for each in self.served.received if each.headers["x-coterie-agent"] == agent]

    def log(self, agent: str, purpose: str = "turn") -> list[dict[str, Any]]:
        """Return the log entries of *agent*'s requests."""
        return [e for e in self.served.requests if e["agent"] == agent and e["purpose"] == purpose]


@asynccontextmanager
async def open_family(
    directory: Path,
    main: Sequence[dict[str, Any]],
    *,
    spawn: Callable[[Family], Awaitable[object]] | None = None,
    read: Callable[[str], Any] = str,
    model: str = MODEL.id,
    betas: tuple[str, ...] = (),
    fork: Sequence[dict[str, Any]] = (FORK,),
) -> AsyncIterator[Family]:
    """A parent that says *main* when it is run; its calls of Agent do what *spawn* says, once for all of a turn."""
    family: list[Family] = []

    async def act(_text: str) -> str:
        if spawn is not None and family[0].created_point is None:
            await spawn(family[0])
        return "started"

    tools = (NotingTool(name="Read", act=read), NotingTool(name="Agent", act=act, access="session"))
    with trio.fail_after(60):
        async with open_served(json.dumps({"main": list(main), "default": list(fork)})) as served:
            gate = ModelGateway(served.clock)
            with TranscriptWriter.open(directory / "main.jsonl", served.clock) as transcript:
                async with (
                    gate.open_client("main") as asker,
                    open_model_client(asker, base_url=served.url, api_key="k", policy=QUICK) as client,
                ):
                    parent = build_agent(
                        transcript,
                        client,
                        directory,
                        *tools,
                        model=known_models().get(model),
                        header=KeyHeader(model=model, betas=betas),
                        system=[text_block("You are one of many. " * 200)],
                        clock=served.clock,
                    )
                    parent.append_message("user", [text_block("Here is the project."), text_block("the task")])
                    family.append(Family(parent, served, gate, directory))
                    yield family[0]
