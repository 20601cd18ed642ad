"""Each request repeats the bytes of the one before and adds new ones, also after an agent was stopped and resumed."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import TranscriptWriter, load_transcript
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import ModelRequest
from coterie.scenarios.api_server.api.messages_endpoint import ServerOptions
from coterie.scenarios.api_server.app import EmbeddedServer
from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.script_parser import parse_script
from tests.agents.conversation_blocks import text, tool_result
from tests.conformance.cases import Bill
from tests.embedded_server import Served

MODEL = "claude-opus-5-5"
TOOL = b'{ "name": "Bash",\n  "input_schema": {"type": "object"} }'
SCRIPT = """
main:
  - {thinking: One., text: Begin., tools: [{Bash: {command: "ls \\u00e9", n: 1.0}}, {Bash: {b: 1, a: [null, {}]}}]}
  - {thinking: Two., tools: [{Bash: {command: make}}]}
  - {text: "Half-way.\\n\\u2028", tools: [{Bash: {deep: {z: 1, y: 2}}}, {Bash: {}}, {Bash: {command: ""}}]}
  - {thinking: [Three., Four.], tools: [{Bash: {command: "cat a"}}]}
  - {thinking: Five., text: Done.}
"""
TURNS = 5
MARKER = b',"cache_control":{"type":"ephemeral"}'
CLOSING = b"]}]}"
"""Ends of the last message, of the list of messages, and of the body."""


@attrs.define(eq=False)
class Recorder:
    """Records the bytes of every request to the embedded server."""

    server: EmbeddedServer
    bodies: list[bytes] = attrs.field(factory=list)

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """Record the request and pass it to the server."""
        self.bodies.append(request.body)
        await self.server.handle(request, respond)

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        """Return the refusal of the server."""
        return self.server.refusal(error)


@attrs.define(eq=False)
class Agent:
    """A tool loop over a conversation whose every change is on disk before the next request."""

    client: ModelClient
    conversation: Conversation
    transcript: TranscriptWriter
    bills: list[Bill] = attrs.field(factory=list)

    async def run_turns(self, turns: int, first: int = 1) -> None:
        """Run *turns* turns of replies and tool calls."""
        for turn in range(first, first + turns):
            rendered = self.conversation.render(max_tokens=8_000)
            reply = await self.client.ask(
                ModelRequest(
                    body=rendered.body,
                    model=known_models().get(MODEL),
                    max_tokens=8_000,
                    prompt_tokens=0,
                    turn=turn,
                )
            )
            self.bills.append(Bill.of(reply.raw_usage))
            self.conversation.sent(rendered)
            self.conversation.append("assistant", [block.data for block in reply.blocks])
            self.transcript.record(self.conversation)
            if reply.tool_calls:
                self.conversation.append("user", [tool_result(call["id"], "é\n") for call in reply.tool_calls])
                self.transcript.record(self.conversation)


@attrs.frozen(kw_only=True)
class Site:
    """A strict server, its recorded requests, and a client."""

    recorder: Recorder
    served: Served
    client: ModelClient

    @property
    def prefix_hashes(self) -> list[str]:
        """Return the bill of each request, computed by the server."""
        return [entry["prefix_hash"] for entry in self.served.requests]


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    """Open a server; two of them behave alike, with the same script and seed."""
    recorder = Recorder(EmbeddedServer(ServerOptions(script=parse_script(SCRIPT, "test.yaml"))))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_http, recorder)
        served = Served(server=recorder.server, port=port)
        async with open_model_client(LocalGateway(), base_url=served.url, api_key="key") as client:
            yield Site(recorder=recorder, served=served, client=client)
        nursery.cancel_scope.cancel()
    assert not recorder.server.bugs


def begun() -> Conversation:
    conversation = Conversation.begin(KeyHeader(model=MODEL), tools=[TOOL], system=[text("s" * 3_000)])
    conversation.append("user", [text("Mend it.")])
    return conversation


async def uninterrupted(site: Site, path: Path) -> Agent:
    with TranscriptWriter.open(path) as transcript:
        agent = Agent(site.client, begun(), transcript)
        await agent.run_turns(TURNS)
    return agent


async def resumed(site: Site, path: Path, turns: int) -> Agent:
    """Run an agent for *turns* turns, and resume it from nothing but its transcript."""
    with TranscriptWriter.open(path) as transcript:
        await Agent(site.client, begun(), transcript).run_turns(turns)
    with TranscriptWriter.open(path) as transcript:
        assert transcript.loaded.conversation is not None
        agent = Agent(site.client, transcript.loaded.conversation, transcript)
        await agent.run_turns(TURNS - turns, turns + 1)
    return agent


async def test_each_request_begins_with_the_bytes_of_the_one_before(tmp_path: Path) -> None:
    async with open_site() as site:
        await uninterrupted(site, tmp_path / "transcript.jsonl")
    bodies = [body.replace(MARKER, b"") for body in site.recorder.bodies]
    assert len(bodies) == TURNS
    for before, after in itertools.pairwise(bodies):
        assert before.endswith(CLOSING)
        assert after.startswith(before.removesuffix(CLOSING) + b"]},")


async def test_what_the_model_said_goes_back_as_it_came(tmp_path: Path) -> None:
    async with open_site() as site:
        agent = await uninterrupted(site, tmp_path / "transcript.jsonl")
    last = site.recorder.bodies[-1].replace(MARKER, b"")
    said = [block for role, blocks in agent.conversation.messages[:-1] if role == "assistant" for block in blocks]
    assert len(said) == 13
    assert all(block in last for block in said)


async def test_a_loaded_transcript_renders_the_same_body_at_every_turn(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    async with open_site() as site:
        with TranscriptWriter.open(path) as transcript:
            agent = Agent(site.client, begun(), transcript)
            for turn in range(1, TURNS):
                await agent.run_turns(1, turn)
                loaded = load_transcript(path).conversation
                assert loaded is not None
                assert loaded.render(max_tokens=8_000) == agent.conversation.render(max_tokens=8_000)


@pytest.mark.parametrize("turns", range(1, TURNS))
async def test_a_resumed_agent_sends_what_it_would_have_sent(tmp_path: Path, turns: int) -> None:
    async with open_site() as one, open_site() as other:
        straight = await uninterrupted(one, tmp_path / "straight.jsonl")
        broken = await resumed(other, tmp_path / "broken.jsonl", turns)
        assert one.prefix_hashes == other.prefix_hashes
        assert len(set(one.prefix_hashes)) == TURNS
    assert one.recorder.bodies == other.recorder.bodies
    assert straight.bills[turns:] == broken.bills
    assert straight.conversation.prefix_hash == broken.conversation.prefix_hash


async def test_a_resumed_agent_reads_all_that_was_cached_before_it_stopped(tmp_path: Path) -> None:
    async with open_site() as site:
        path = tmp_path / "transcript.jsonl"
        with TranscriptWriter.open(path) as transcript:
            first = Agent(site.client, begun(), transcript)
            await first.run_turns(2)
        with TranscriptWriter.open(path) as transcript:
            assert transcript.loaded.conversation is not None
            second = Agent(site.client, transcript.loaded.conversation, transcript)
            await second.run_turns(1, 3)
    assert second.bills[0].read == first.bills[-1].cached > 0
