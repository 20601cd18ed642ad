"""CPU time of the server's cache work on one request of 800 KB in about 2,000 blocks, by step and in total.

The prompt is cached up to its second to last turn, as in a running conversation. Measured in this process, with a
limit as the goal; the steps are timed within one pass, so they add up to that pass.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import TypeVar

import attrs

from benchmarks.figures import Figure, at_most
from benchmarks.sample_history import MAX_TOKENS, build_conversation
from coterie.agents.loop.model.catalog import known_models
from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.prompt_cache import PromptCache
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiCaller, parse_request

SIZE = 800_000
PASSES = 60
LIMIT = 10.0
"""Milliseconds for all steps."""

Result = TypeVar("Result")


@attrs.define(eq=False)
class _Pass:
    """CPU times of the steps of one request, in milliseconds."""

    steps: dict[str, float] = attrs.field(factory=dict)

    def time(self, name: str, work: Callable[[], Result]) -> Result:
        began = time.process_time()
        result = work()
        self.steps[name] = (time.process_time() - began) * 1e3
        return result


async def measure() -> list[Figure]:
    """Measure each step and the total: the median of all passes, and the best total."""
    conversation = build_conversation(SIZE)
    cache = PromptCache()
    earlier = conversation.render(max_tokens=MAX_TOKENS)
    _look_up(cache, earlier.body)
    conversation.sent(earlier)
    conversation.append("assistant", [b'{"type":"text","text":"Both files are read."}'])
    conversation.append("user", [b'{"type":"text","text":"Then say what they do."}'])
    body = conversation.render(max_tokens=MAX_TOKENS).body
    passes = [_look_up(cache, body) for _ in range(PASSES)]
    sums = [sum(steps.values()) for steps in passes]
    return [
        Figure(name="body", value=len(body) / 1e3, unit="KB", digits=0),
        Figure(name="blocks", value=len(conversation), unit="", digits=0),
        *(Figure(name=name, value=median(steps[name] for steps in passes), unit="ms") for name in passes[0]),
        Figure(
            name="all but parsing, median",
            value=median(s - p["parse_call"] for s, p in zip(sums, passes, strict=True)),
            unit="ms",
        ),
        Figure(name="all steps, best", value=min(sums), unit="ms"),
        Figure(name="all steps, median", value=median(sums), unit="ms", goal=at_most(LIMIT)),
    ]


def _look_up(cache: PromptCache, body: bytes) -> dict[str, float]:
    caller, models, timed = ApiCaller(key="benchmark"), known_models(), _Pass()
    call = timed.time("parse_call", lambda: parse_request(body, caller, models))
    prompt = timed.time("build_prompt", lambda: build_prompt_digest(call))
    markers = timed.time("find_markers", lambda: find_breakpoints(call, prompt))
    minimum = call.model.cache_minimum
    verdict = timed.time("look_up", lambda: cache.look_up(prompt, markers, minimum=minimum, now=1.0))
    cache.publish(verdict)
    return timed.steps
