"""The next request of a conversation reads everything that the previous one cached, and writes only new content."""

import json
import random
from collections.abc import Iterator

import attrs
import pytest

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.request_body import RenderedRequest
from tests.agents.conversation_blocks import text, thinking, tool_result, tool_use
from tests.conformance.cases import SCRIPT, Bill, send_raw
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
