"""Requests of an agent: each repeats the bytes of the one before, and reads from the cache what that one wrote."""

import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.request_body import RenderedRequest
from coterie.agents.loop.conversation.transcript import TranscriptWriter, load_transcript
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import ModelRequest
from tests.agents.conversation_blocks import text, thinking, tool_result, tool_use
from tests.conformance.cases import SCRIPT, Bill, send_raw
from tests.conformance.reference_cache import count_tokens
from tests.embedded_server import Served, open_sdk, open_served

MODEL = "claude-opus-5-5"
TOOL = b'{ "name": "Bash",\n  "input_schema": {"type": "object"} }'
LOOP = """
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
        return [request.body for request in self.served.received]


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    async with (
        open_served(LOOP) as served,
        open_model_client(LocalGateway(), base_url=served.url, api_key="key") as client,
    ):
        yield Site(served=served, client=client)


def begun() -> Conversation:
    conversation = Conversation.begin(KeyHeader(model=MODEL), tools=[TOOL], system=[text("s" * 3_000)])
    conversation.append("user", [text("Here is the code. " * 20), text("Mend it.")])
    return conversation


@contextmanager
def open_agent(site: Site, path: Path) -> Iterator[Agent]:
    """Begin an agent, or resume it from nothing but its transcript."""
    with TranscriptWriter.open(path) as transcript:
        conversation = transcript.loaded.conversation
        if conversation is None:
            conversation = begun()
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


CALLS = 30
"""Largest number of parallel tool calls in a reply."""
BEYOND_LOOKBACK = 25
FEW = [*[0] * 16, *[1] * 6, 2, 3]
"""Limit for most turns, because the server parses the whole history again in every turn."""
PAUSE = 290.0
"""Seconds between two requests: an entry that was not refreshed would expire before the second."""


def tokens(conversation: Conversation, start: int, stop: int) -> int:
    """Return the tokens of the segments from *start* up to but not including *stop*."""
    return sum(count_tokens(json.loads(segment.data)) for segment in conversation.segments[start:stop])


def whole(conversation: Conversation, *, helper: bool = False) -> RenderedRequest:
    """Return the next request, for a reply without streaming."""
    return conversation.render(max_tokens=16, stream=False, helper=helper)


@attrs.define(eq=False)
class Expected:
    """Expected bill of the next request of a conversation, computed only from the places of its markers."""

    conversation: Conversation
    end: int = -1
    """The last marker of the previous request."""
    cached: int = 0
    """Tokens up to that marker, as that request was billed."""

    def check(self, rendered: RenderedRequest, bill: Bill) -> None:
        """Compare *bill*; from the second request on it is an exact hit."""
        assert len(rendered.marks) <= 4
        assert rendered.body.count(b'"cache_control"') == len(rendered.marks)
        last = rendered.marks[-1]
        assert bill == Bill(
            read=self.cached,
            write_5m=tokens(self.conversation, self.end + 1, last + 1),
            uncached=tokens(self.conversation, last + 1, len(self.conversation)),
        )
        self.end, self.cached = last, bill.cached


def replies(turns: int, dice: random.Random) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Return replies and answers of many turns, from a single word to dozens of blocks."""
    for turn in range(turns):
        calls = [f"toolu_{turn}_{n}" for n in range(dice.choice([*FEW, dice.randint(4, CALLS)]))]
        said = dice.choice([[], [thinking()], [text("I see.")], [thinking(), text("So.")], [text("")]])
        said += [text(f"Point {n}.") for n in range(dice.choice([*FEW, BEYOND_LOOKBACK]))]
        told = dice.choice([[], [], [text("Go on.")], [text("")], [text("x" * 400), text("")]])
        told += [text(f"Note {n}.") for n in range(dice.choice([*FEW, BEYOND_LOOKBACK]))]
        yield (
            [*said, *(tool_use(id_) for id_ in calls)] or [thinking("")],
            [*(tool_result(id_, "done " * dice.randint(0, 20)) for id_ in calls), *told] or [text("")],
        )


@pytest.mark.slow
@pytest.mark.parametrize("turns", [150, pytest.param(500, marks=pytest.mark.soak)])
async def test_each_of_many_turns_reads_exactly_the_cached_prefix(turns: int) -> None:
    conversation = begun()
    expected = Expected(conversation)
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served) as sdk:
        for said, told in replies(turns, random.Random(7)):
            rendered = whole(conversation)
            expected.check(rendered, await send_raw(sdk, rendered.body))
            conversation.sent(rendered)
            conversation.append("assistant", said)
            conversation.append("user", told)
            served.clock.advance(PAUSE)


async def test_fork_and_helper_read_what_their_parent_cached() -> None:
    """A helper writes nothing, a fork continues with exact hits; `test_forks` covers siblings."""
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served) as sdk:
        parent = begun()
        for calls in (("toolu_1",), ("toolu_2", "toolu_3", "toolu_4")):
            rendered = whole(parent)
            before = await send_raw(sdk, rendered.body)
            parent.sent(rendered)
            parent.append("assistant", [thinking(), text("Tasks."), *map(tool_use, calls)])
            if calls == ("toolu_1",):
                parent.append("user", [tool_result("toolu_1", "done " * 90)])
        helper = parent.fork_with("Not run.", "Write down what matters.")
        bill = await send_raw(sdk, whole(helper, helper=True).body)
        assert bill == Bill(read=before.cached, uncached=tokens(helper, 0, len(helper)) - before.cached)
        fork = parent.fork_with("Started.", "Take the first part.")
        rendered = whole(fork)
        first = await send_raw(sdk, rendered.body)
        assert first == Bill(read=before.cached, write_5m=tokens(fork, 0, len(fork)) - before.cached)
        expected = Expected(fork, rendered.marks[-1], first.cached)
        for turn in range(3):
            fork.sent(rendered)
            fork.append("assistant", [text(f"Point {n}.") for n in range(BEYOND_LOOKBACK)])
            fork.append("user", [text(f"On {turn}.")])
            rendered = whole(fork)
            expected.check(rendered, await send_raw(sdk, rendered.body))
