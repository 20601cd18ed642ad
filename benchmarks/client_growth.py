"""How the client's CPU grows with the history, against a bare write of as many bytes to the same server.

The server is the fixed reply in another process, so its work does not depend on what it is sent. The bare client
writes bytes that are ready to a socket and reads the answer: what no client can save.
"""

from functools import partial

from benchmarks.client_cpu import ask, cpu_of
from benchmarks.figures import Figure, at_most
from benchmarks.fixed_reply import open_fixed_server
from benchmarks.history import MAX_TOKENS, build_conversation
from benchmarks.wire import open_wire, post
from coterie.agents.gate import LocalGate
from coterie.agents.model.client import open_model_client

SIZES = (400_000, 800_000, 1_600_000)
ROUNDS = 100


async def measure() -> list[Figure]:
    """Both clients at each size, and by how much each grows when the history doubles."""
    conversations = [build_conversation(size) for size in SIZES]
    bodies = [conversation.render(max_tokens=MAX_TOKENS).body for conversation in conversations]
    async with (
        open_fixed_server() as server,
        open_model_client(LocalGate(), base_url=server.url, api_key="benchmark") as client,
        open_wire(server.port) as wire,
    ):
        asks = [partial(ask, client, conversation) for conversation in conversations]
        writes = [partial(wire.exchange, post(body)) for body in bodies]
        spent = await cpu_of([*asks, *writes], rounds=ROUNDS)
    ours, bare = spent[: len(SIZES)], spent[len(SIZES) :]
    figures = []
    for index, size in enumerate(SIZES):
        figures.append(Figure(name=f"{size // 1000} KB: ours", value=ours[index], unit="ms"))
        figures.append(Figure(name=f"{size // 1000} KB: bare write", value=bare[index], unit="ms"))
    return figures
