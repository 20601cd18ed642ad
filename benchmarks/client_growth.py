"""Growth of the client's CPU time when the history doubles, compared with writing the same number of bytes.

The server sends fixed replies from another process, so its work does not depend on the request. Two baselines write
ready bytes: through the SDK's transport, which Coterie uses, too, and directly to a socket. The goal is the first
baseline: rendering and all other work of Coterie adds nothing that grows.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import trio

from benchmarks.client_cpu import ask, cpu_of, request_of
from benchmarks.figures import Figure, at_most
from benchmarks.fixed_reply_server import open_fixed_server
from benchmarks.raw_http import messages_request, open_connection
from benchmarks.sample_history import MAX_TOKENS, build_conversation
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway

SIZES = (400_000, 800_000, 1_600_000)
ROUNDS = 120
READY = "SDK's write of ready bytes"


async def measure() -> list[Figure]:
    """Measure both clients at each size, and the growth from one size to the next."""
    conversations = [build_conversation(size) for size in SIZES]
    bodies = [conversation.render(max_tokens=MAX_TOKENS).body for conversation in conversations]
    async with (
        open_fixed_server() as server,
        open_model_client(LocalGateway(), base_url=server.url, api_key="benchmark") as client,
        open_connection(server.port) as wire,
    ):
        asks = [partial(ask, client, conversation) for conversation in conversations]
        renders = [partial(_render, conversation) for conversation in conversations]
        readies = [partial(client.ask, request_of(body)) for body in bodies]
        writes = [partial(wire.exchange, messages_request(body)) for body in bodies]
        spent = await cpu_of([*asks, *renders, *readies, *writes], rounds=ROUNDS)
    by_way = {
        "ours": spent[:3],
        "rendering alone": spent[3:6],
        READY: spent[6:9],
        "bare write": spent[9:],
    }
    return [*_totals(by_way), *_growths(by_way)]


async def _render(conversation: Conversation) -> None:
    conversation.render(max_tokens=MAX_TOKENS)
    await trio.lowlevel.checkpoint()


def _totals(by_way: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    for index, size in enumerate(SIZES):
        for way, spent in by_way.items():
            yield Figure(name=f"{size // 1000:,} KB: {way}", value=spent[index], unit="ms")


def _growths(by_way: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    for index in range(1, len(SIZES)):
        growth = {way: spent[index] - spent[index - 1] for way, spent in by_way.items()}
        doubling = f"{SIZES[index - 1] // 1000:,} to {SIZES[index] // 1000:,} KB"
        for way, grown in growth.items():
            goal = at_most(growth[READY]) if way == "ours" else None
            yield Figure(name=f"{doubling}: {way} grows by", value=grown, unit="ms", goal=goal)
