"""A long session of one agent, built from recorded runs in sequence with real calls in between."""

import json
import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs

from benchmarks.package_calls import PackageCalls
from benchmarks.recorded_runs import CODING, SERVICE, Exchange, RecordedReply, read_runs

CALLED_IN_BETWEEN = 0.25
"""Probability that an exploration of the packages precedes a recorded call."""
AT_ONCE = (1, 1, 1, 2, 3)
"""Number of calls in one exploration."""
SHORT = (2.0, 200.0)
LONG = (330.0, 3_600.0)
"""Seconds; far from the cache lifetime of five minutes, so that the speed of the machine does not matter."""
LONG_IN_A_TURN, LONG_BETWEEN_TURNS = 0.03, 0.1
"""Probability of a long pause; real pauses were not recorded."""


@attrs.frozen(kw_only=True)
class LongSession:
    """User texts, model replies with calls, and pauses of a session."""

    exchanges: tuple[Exchange, ...]
    pauses: tuple[float, ...]
    """Seconds after each reply, until its calls have run or the user has read it."""
    service_tools: frozenset[str]
    """Names of tools that represent those of other servers, whose results are never cleared."""

    @property
    def replies(self) -> list[RecordedReply]:
        """All replies, in the order of the model calls."""
        return [reply for exchange in self.exchanges for reply in exchange.replies]

    def script(self) -> str:
        """Return the script for the embedded server. No thinking was recorded: a reply's thinking repeats its text."""
        # JSON is YAML.
        return json.dumps({"default": [scripted(reply) for reply in self.replies]})


def build_session(calls: int, seed: int = 0) -> LongSession:
    """Build a session of at least *calls* model calls, up to the end of an exchange; deterministic for a seed."""
    source = random.Random(seed)
    coding, service = read_runs(CODING), read_runs(SERVICE)
    service_tools = {
        call.name for run in service for exchange in run for reply in exchange.replies for call in reply.calls
    }
    source.shuffle(coding)
    source.shuffle(service)
    packages = PackageCalls(source)
    exchanges, pauses = list[Exchange](), list[float]()
    for exchange in chain.from_iterable(chain.from_iterable(zip(coding, service, strict=False))):
        if len(pauses) >= calls:
            break
        exchanges.append(_with_package_calls(exchange, packages))
        pauses += draw_pauses(source, len(exchanges[-1].replies))
    return LongSession(exchanges=tuple(exchanges), pauses=tuple(pauses), service_tools=frozenset(service_tools))


def _with_package_calls(exchange: Exchange, packages: PackageCalls) -> Exchange:
    """Return *exchange* with calls over the packages before some of its own."""
    source = packages.source
    replies: list[RecordedReply] = []
    for reply in exchange.replies:
        if reply.calls and source.random() < CALLED_IN_BETWEEN:
            looks = tuple(packages.draw() for _ in range(source.choice(AT_ONCE)))
            replies.append(RecordedReply(text="I look at how others have done this.", calls=looks))
        replies.append(reply)
    return attrs.evolve(exchange, replies=tuple(replies))


def draw_pauses(source: random.Random, replies: int) -> Iterator[float]:
    """Return the pause after each reply of an exchange; the last one waits for the user."""
    for left in reversed(range(replies)):
        share = LONG_IN_A_TURN if left else LONG_BETWEEN_TURNS
        yield source.uniform(*(LONG if source.random() < share else SHORT))


def scripted(reply: RecordedReply) -> dict[str, Any]:
    """Return *reply* in the format of a script."""
    text = {"text": reply.text} if reply.text else {}
    tools = {"tools": [{call.name: call.arguments} for call in reply.calls]} if reply.calls else {}
    return {"thinking": reply.text or f"Next comes {reply.calls[0].name}.", **text, **tools}
