"""The next request of a conversation reads everything that the previous one cached, and writes only new content."""

import json
import random
from collections.abc import Iterator

import anthropic
import attrs
import pytest
import trio

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.request_body import RenderedRequest
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import ModelRequest
from tests.agents.conversation_blocks import text, thinking, tool_result, tool_use
from tests.conformance.cases import SCRIPT, Bill
from tests.conformance.raw_requests import send_raw
from tests.conformance.reference_cache import count_tokens
from tests.embedded_server import open_sdk, open_served

MODEL = "claude-opus-5-5"
TOOL = b'{"name":"Bash","description":"Run a command.","input_schema":{"type":"object"}}'
CALLS = 30
"""Largest number of parallel tool calls in a reply."""
BEYOND_LOOKBACK = 25
FEW = [*[0] * 16, *[1] * 6, 2, 3]
"""Limit for most turns, because the server parses the whole history again in every turn."""
PAUSE = 290.0
"""Seconds between two requests: an entry that was not refreshed would expire before the second."""


def begun() -> Conversation:
    conversation = Conversation.begin(KeyHeader(model=MODEL), tools=[TOOL], system=[text("s" * 3_000)])
    conversation.append("user", [text("Here is the code. " * 20), text("Mend it.")])
    return conversation


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


STRICT_TURNS = 30


def strict_script() -> str:
    """Return a tool loop of one to nine calls per turn, each turn with thinking; JSON is YAML."""
    working = [
        {"thinking": f"Step {turn}.", "text": "Next.", "tools": [{"Bash": {"n": n}} for n in range(turn % 9 + 1)]}
        for turn in range(STRICT_TURNS - 1)
    ]
    return json.dumps({"main": [*working, {"text": "Done."}]})


async def ask(client: ModelClient, conversation: Conversation, turn: int) -> tuple[RenderedRequest, Reply]:
    rendered = conversation.render(max_tokens=8_000)
    model = known_models().get(MODEL)
    request = ModelRequest(body=rendered.body, model=model, max_tokens=8_000, prompt_tokens=0, turn=turn)
    return rendered, await client.ask(request)


@pytest.mark.slow
async def test_a_strict_server_and_the_real_client_agree_turn_by_turn() -> None:
    """Thinking, tool calls and their ids come from the model, and are sent back unchanged."""
    conversation = begun()
    expected = Expected(conversation)
    async with (
        open_served(strict_script()) as served,
        open_model_client(LocalGateway(), base_url=served.url, api_key="key") as client,
    ):
        for turn in range(1, STRICT_TURNS + 1):
            rendered, reply = await ask(client, conversation, turn)
            expected.check(rendered, Bill.of(reply.raw_usage))
            conversation.sent(rendered)
            conversation.append("assistant", [block.data for block in reply.blocks])
            if reply.tool_calls:
                conversation.append("user", [tool_result(call["id"]) for call in reply.tool_calls])
            served.clock.advance(PAUSE)
    assert reply.stop_reason == "end_turn"


async def parent(sdk: anthropic.AsyncAnthropic) -> tuple[Conversation, Bill]:
    """Return a conversation after its second request, with three pending tool calls, and the bill of that request."""
    conversation = begun()
    conversation.sent(rendered := whole(conversation))
    await send_raw(sdk, rendered.body)
    conversation.append("assistant", [thinking(), tool_use("toolu_1")])
    conversation.append("user", [tool_result("toolu_1", "done " * 90)])
    conversation.sent(rendered := whole(conversation))
    bill = await send_raw(sdk, rendered.body)
    conversation.append("assistant", [thinking(), text("Three tasks."), *(tool_use(f"toolu_{n}") for n in (2, 3, 4))])
    return conversation, bill


async def test_all_forks_but_the_first_read_everything_they_share() -> None:
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served) as sdk:
        lead, before = await parent(sdk)
        forks = [lead.fork_with("Started.", f"Take part {n} of the work.") for n in range(20)]
        shared = len(forks[0]) - 1
        first = await send_raw(sdk, whole(forks[0]).body)
        assert first == Bill(read=before.cached, write_5m=tokens(forks[0], 0, shared + 1) - before.cached, uncached=0)
        bills: list[Bill] = []

        async def post_fork(fork: Conversation) -> None:
            bill = await send_raw(sdk, whole(fork).body)
            assert bill == Bill(read=tokens(fork, 0, shared), write_5m=tokens(fork, shared, shared + 1))
            bills.append(bill)

        async with trio.open_nursery() as nursery:
            for fork in forks[1:]:
                nursery.start_soon(post_fork, fork)
        assert len(bills) == 19


async def test_a_helper_reads_what_its_parent_cached_and_writes_nothing() -> None:
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served) as sdk:
        lead, before = await parent(sdk)
        helper = lead.fork_with("Not run.", "Write down what matters.")
        bill = await send_raw(sdk, whole(helper, helper=True).body)
        assert bill == Bill(read=before.cached, uncached=tokens(helper, 0, len(helper)) - before.cached)


async def test_fork_continues_with_exact_hits() -> None:
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served) as sdk:
        lead, _ = await parent(sdk)
        fork = lead.fork_with("Started.", "Take the first part.")
        rendered = whole(fork)
        expected = Expected(fork, rendered.marks[-1], (await send_raw(sdk, rendered.body)).cached)
        for turn in range(3):
            fork.sent(rendered)
            fork.append("assistant", [text(f"Point {n}.") for n in range(25)])
            fork.append("user", [text(f"On {turn}.")])
            rendered = whole(fork)
            expected.check(rendered, await send_raw(sdk, rendered.body))
