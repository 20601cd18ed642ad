"""CPU time of the client for one request on a long history: the SDK's `messages.create` against `ModelClient.ask`.

Both send the same bytes to the embedded server in another process. Coterie renders the conversation first; the SDK gets
the same request as dictionaries. Only the CPU time of this process counts.
"""

import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import anthropic
import msgspec

from benchmarks.figures import Figure, at_least
from benchmarks.sample_history import MAX_TOKENS, MODEL, build_conversation
from benchmarks.scripted_server import open_scripted_server
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import JSON_BYTES
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import ModelRequest

SIZE = 800_000
ROUNDS = 30
TIMES_LESS = 4.0

Send = Callable[[], Awaitable[object]]
"""Function that makes one request and reads its reply to the end."""


async def measure() -> list[Figure]:
    """Measure the median of each client, and the ratios to Coterie's."""
    conversation = build_conversation(SIZE)
    transport = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with (
        open_scripted_server() as server,
        anthropic.AsyncAnthropic(api_key="benchmark", base_url=server.url, max_retries=0, http_client=transport) as sdk,
        open_model_client(LocalGateway(), base_url=server.url, api_key="benchmark") as client,
    ):
        create, stream = _sdk_ways(sdk, conversation)
        whole, streamed, ours = await cpu_of([create, stream, lambda: ask(client, conversation)], rounds=ROUNDS)
    return [
        Figure(name="history", value=len(conversation.render(max_tokens=MAX_TOKENS).body) / 1e3, unit="KB", digits=0),
        Figure(name="messages.create, whole", value=whole, unit="ms"),
        Figure(name="messages.create, streaming", value=streamed, unit="ms"),
        Figure(name="ours, streaming", value=ours, unit="ms"),
        Figure(name="ours is less than whole by", value=whole / ours, unit="x", goal=at_least(TIMES_LESS)),
        Figure(name="ours is less than streaming by", value=streamed / ours, unit="x", goal=at_least(TIMES_LESS)),
    ]


async def ask(client: ModelClient, conversation: Conversation) -> None:
    """One turn of an agent: render, ask, read the reply."""
    rendered = conversation.render(max_tokens=MAX_TOKENS)
    await client.ask(request_of(*rendered.chunks, prefix=conversation.prefix_hash))


def request_of(*chunks: bytes, prefix: bytes = b"") -> ModelRequest:
    """Return a request with this body."""
    return ModelRequest(
        body=chunks,
        model=known_models().get(MODEL),
        max_tokens=MAX_TOKENS,
        prompt_tokens=sum(map(len, chunks)) // JSON_BYTES,
        prefix=prefix,
    )


async def cpu_of(ways: list[Send], *, rounds: int) -> list[float]:
    """Measure the CPU milliseconds of this process for each of *ways*: medians over interleaved rounds."""
    spent: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 2):
        for way, taken in zip(ways, spent, strict=True):
            began = time.process_time()
            await way()
            # The first two rounds connect and build the SDK's validators.
            if number >= 2:
                taken.append((time.process_time() - began) * 1e3)
    return [median(taken) for taken in spent]


def _sdk_ways(sdk: anthropic.AsyncAnthropic, conversation: Conversation) -> tuple[Send, Send]:
    params: dict[str, Any] = msgspec.json.decode(conversation.render(max_tokens=MAX_TOKENS).body)
    del params["stream"]

    async def create() -> None:
        await sdk.messages.create(**params)

    async def stream() -> None:
        async for _ in await sdk.messages.create(**params, stream=True):
            pass

    return create, stream
