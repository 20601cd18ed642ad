"""Each request repeats the bytes of the one before and adds new ones, also after an agent was stopped and resumed."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import TranscriptWriter, load_transcript
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import ModelRequest
from tests.agents.conversation_blocks import text, tool_result
from tests.conformance.cases import Bill
from tests.embedded_server import Served, open_served

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
    """A strict server and a client; two of them behave alike, with the same script and seed."""

    served: Served
    client: ModelClient

    @property
    def bodies(self) -> list[bytes]:
        """Bytes of the requests."""
        return [request.body for request in self.served.received]


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    async with (
        open_served(SCRIPT) as served,
        open_model_client(LocalGateway(), base_url=served.url, api_key="key") as client,
    ):
        yield Site(served=served, client=client)


@contextmanager
def open_agent(site: Site, path: Path) -> Iterator[Agent]:
    """Begin an agent, or resume it from nothing but its transcript."""
    with TranscriptWriter.open(path) as transcript:
        conversation = transcript.loaded.conversation
        if conversation is None:
            conversation = Conversation.begin(KeyHeader(model=MODEL), tools=[TOOL], system=[text("s" * 3_000)])
            conversation.append("user", [text("Mend it.")])
        yield Agent(site.client, conversation, transcript)


async def test_each_request_begins_with_the_bytes_of_the_one_before(tmp_path: Path) -> None:
    """What the model said goes back as it came, and a loaded transcript renders the same body at every turn."""
    path = tmp_path / "transcript.jsonl"
    async with open_site() as site:
        with open_agent(site, path) as agent:
            for turn in range(1, TURNS + 1):
                await agent.run_turns(1, turn)
                loaded = load_transcript(path).conversation
                assert loaded is not None
                assert loaded.render(max_tokens=8_000) == agent.conversation.render(max_tokens=8_000)
    bodies = [body.replace(MARKER, b"") for body in site.bodies]
    assert len(bodies) == TURNS
    for before, after in itertools.pairwise(bodies):
        assert before.endswith(CLOSING)
        assert after.startswith(before.removesuffix(CLOSING) + b"]},")
    said = [block for role, blocks in agent.conversation.messages[:-1] if role == "assistant" for block in blocks]
    assert len(said) == 13
    assert all(block in bodies[-1] for block in said)
    for earlier, later in itertools.pairwise(agent.bills):
        assert later.read == earlier.cached > 0


@pytest.mark.parametrize("turns", range(1, TURNS))
async def test_a_resumed_agent_sends_what_it_would_have_sent(tmp_path: Path, turns: int) -> None:
    async with open_site() as one, open_site() as other:
        with open_agent(one, tmp_path / "straight.jsonl") as straight:
            await straight.run_turns(TURNS)
        with open_agent(other, tmp_path / "broken.jsonl") as broken:
            await broken.run_turns(turns)
        with open_agent(other, tmp_path / "broken.jsonl") as broken:
            await broken.run_turns(TURNS - turns, turns + 1)
        hashes = [[entry["prefix_hash"] for entry in site.served.requests] for site in (one, other)]
        assert hashes[0] == hashes[1]
        assert len(set(hashes[0])) == TURNS
    assert one.bodies == other.bodies
    assert straight.bills[turns:] == broken.bills
    assert straight.conversation.prefix_hash == broken.conversation.prefix_hash
