"""Teams of real agents on the embedded server, with or without the session's gateway; every request is recorded."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from benchmarks.bill_optimum import Sent, input_tokens
from benchmarks.forked_agent import fork_agent
from coterie.agents.layers.prompt_cache.break_detection import ForkSharingCheck
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.model.usage import Usage
from coterie.agents.loop.pipeline import Steps, arrange
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace, allow_all, tool_definition
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.scenarios.api_server.api.messages_endpoint import ServerOptions
from coterie.scenarios.api_server.app import EmbeddedServer
from coterie.scenarios.api_server.http.http_connection import HttpLimits, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.script_parser import parse_script

MODEL = known_models().get("claude-opus-5-5")
TURNS = RunLimits(turns=20)


@attrs.frozen(kw_only=True)
class Way:
    """Setup of a team."""

    has_gate: bool = True
    """True if the session's gateway warms up prefixes and plans for waits."""
    shares: bool = True
    """True if agents start with the same bytes; otherwise the system prompt of each begins with its name."""


@attrs.frozen(kw_only=True)
class NoInput:
    """Arguments of the tools."""


@attrs.frozen(kw_only=True)
class FixedResultTool(Tool):
    """A tool with one result."""

    name: str
    result: str
    description: str = "Tells what there is to know."
    input_type: type[attrs.AttrsInstance] = NoInput
    access: Access = "read"
    is_clearable: bool = True

    async def run(self, _arguments: NoInput, _workspace: Workspace) -> ToolResult:
        """Return the result."""
        return ToolResult(text=self.result)


@attrs.define(eq=False)
class TeamServer:
    """A running server, a client of it, and the requests sent."""

    way: Way
    server: EmbeddedServer
    client: ModelClient
    gate: ModelGateway
    tools: dict[str, Tool]
    sent: list[Sent]
    _directory: Path
    _files: ExitStack

    def fresh(self, name: str, system: str, *words: str, client: ModelClient | None = None) -> Agent:
        """Return an agent that has just received the user text *words*."""
        top = system if self.way.shares else f"You are {name}. {system}"
        conversation = Conversation.begin(
            KeyHeader(model=MODEL.id),
            tools=[tool_definition(tool) for tool in self.tools.values()],
            system=[text_block(top)],
        )
        agent = Agent(
            identity=Identity(agent=name),
            model=MODEL,
            client=client or self.client,
            conversation=conversation,
            transcript=self._transcript(name),
            tools=self.tools,
            workspace=self._workspace(),
            denial=allow_all,
            meter=WindowMeter(Thresholds.for_window(MODEL.window, MODEL.max_output)),
            clock=self.server.clock,
            durability="never",
        )
        agent.append_message("user", [text_block(word) for word in words])
        return agent

    async def run_fork(self, parent: Agent, point: ForkPoint, number: int, system: str) -> None:
        """Run a fork to its end; without sharing, run a fresh agent with the same history."""
        name, directive = f"fork-{number}", f"Look at part {number}."
        async with self.open_client(name, parent="main") as client:
            if self.way.shares:
                fork = fork_agent(
                    parent,
                    point,
                    directive,
                    transcript=self._transcript(name),
                    workspace=self._workspace(),
                    build_pipeline=lambda _agent: arrange(Steps(fork_sharing=ForkSharingCheck(point)), role="fork"),
                    identity=Identity(agent=name),
                    client=client,
                )
            else:
                told = b"\n".join(segment.data for segment in point.prefix.segments[point.prefix.prompt_length :])
                fork = self.fresh(name, system, told.decode(), directive, client=client)
            await run_loop(fork, TURNS)

    @asynccontextmanager
    async def open_client(self, name: str, parent: str | None = None) -> AsyncIterator[ModelClient]:
        """Return the model client of one agent."""
        if not self.way.has_gate:
            yield self.client
            return
        async with self.gate.open_client(name, parent=parent) as asker:
            yield self.client.with_gateway(asker)

    def input_dollars(self) -> Decimal:
        """Return the input cost of all requests by the server's log. Raises `AssertionError` if a request failed."""
        log: list[dict[str, Any]] = msgspec.json.decode(self.server.log.to_bytes())["requests"]
        assert all(entry["status"] == 200 for entry in log), log
        used = [Usage.from_api(entry["usage"]) for entry in log]
        assert sum(usage.prompt for usage in used) == sum(input_tokens(sent.body) for sent in self.sent)
        return sum((MODEL.cost(attrs.evolve(usage, output=0)) for usage in used), Decimal(0))

    def _transcript(self, name: str) -> TranscriptWriter:
        path = self._directory / f"{name}.jsonl"
        return self._files.enter_context(TranscriptWriter.open(path, self.server.clock))

    def _workspace(self) -> Workspace:
        return Workspace(root=self._directory, scratch=self._directory)


@attrs.define(eq=False)
class _RecordingServer:
    """Embedded server that records each request."""

    server: EmbeddedServer
    sent: list[Sent] = attrs.field(factory=list)

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """As `EmbeddedServer.handle`."""
        headers = dict(request.headers)
        self.sent.append(
            Sent(
                agent=headers["x-coterie-agent"],
                purpose=headers["x-coterie-purpose"],
                at=self.server.clock.now(),
                body=request.body,
            )
        )
        await self.server.handle(request, respond)

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        """As `EmbeddedServer.refusal`."""
        return self.server.refusal(error)


@asynccontextmanager
async def open_team_server(way: Way, script: dict[str, Any], *tools: Tool) -> AsyncIterator[TeamServer]:
    """Start a server that replays *script*, for one team."""
    server = EmbeddedServer(ServerOptions(script=parse_script(msgspec.json.encode(script).decode(), "bill")))
    noting = _RecordingServer(server)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_http, noting, limits=HttpLimits()))
        with _open_directory() as (directory, files):
            local = LocalGateway()
            async with open_model_client(local, base_url=f"http://127.0.0.1:{port}", api_key="k") as client:
                by_name = {tool.name: tool for tool in tools}
                gate = ModelGateway(server.clock)
                yield TeamServer(way, server, client, gate, by_name, noting.sent, directory, files)
        nursery.cancel_scope.cancel()
    assert not server.bugs, server.bugs[0]


@contextmanager
def _open_directory() -> Iterator[tuple[Path, ExitStack]]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as files:
        yield Path(directory), files
