"""A thousand concurrent streams: their number, memory of the server per stream, and clean ends.

Every stream begins, pauses and continues after a while; memory is read when the last one has begun. It is that of the
server process: kernel memory of sockets is not counted.
"""

import contextlib
import resource

import attrs
import psutil
import trio

from benchmarks.figures import Figure, at_least
from benchmarks.raw_http import open_connection, small_request
from benchmarks.scripted_server import open_scripted_server

STREAMS = 1_000
WARM_UP = 100
SILENCE = 10.0
"""Duration of each stream in seconds; opening all of them must take less."""
OPENING_AT_ONCE = 20

_REQUEST = small_request(stream=True)


@attrs.define(eq=False)
class _Crowd:
    """*size* streams of one server, counted at their start and end."""

    size: int
    port: int
    begun: int = 0
    ended: int = 0
    whole: int = 0
    """Number of streams that ended with the last event of a reply."""
    all_begun: trio.Event = attrs.field(factory=trio.Event)
    _opening: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(OPENING_AT_ONCE))

    def start(self, nursery: trio.Nursery) -> None:
        for _ in range(self.size):
            nursery.start_soon(self._hold)

    async def _hold(self) -> None:
        await self._opening.acquire()
        async with open_connection(self.port) as wire:
            await wire.begin(_REQUEST, until=b"event: content_block_start")
            self._opening.release()
            self.begun += 1
            if self.begun == self.size:
                self.all_begun.set()
            answer = await wire.finish()
            self.ended += 1
            self.whole += b"event: message_stop" in answer


async def measure() -> list[Figure]:
    """Measure counts of streams, and memory per stream."""
    _raise_descriptor_limit()
    async with open_scripted_server() as server:
        process = psutil.Process(server.pid)
        async with trio.open_nursery() as nursery:
            _Crowd(WARM_UP, server.port).start(nursery)
        fault = {"kind": "stall", "count": STREAMS, "after": 2, "seconds": SILENCE}
        await server.control("faults", fault)
        crowd = _Crowd(STREAMS, server.port)
        before, began = process.memory_info().rss, trio.current_time()
        async with trio.open_nursery() as nursery:
            crowd.start(nursery)
            await crowd.all_begun.wait()
            opening, held = trio.current_time() - began, crowd.begun - crowd.ended
            grown = process.memory_info().rss - before
    return [
        Figure(name="streams held at once", value=held, unit="streams", digits=0, goal=at_least(STREAMS)),
        Figure(
            name="of these came to their proper end",
            value=crowd.whole,
            unit="streams",
            digits=0,
            goal=at_least(STREAMS),
        ),
        Figure(name="time to open all", value=opening, unit="s"),
        Figure(name="memory of one stream", value=grown / max(held, 1) / 1e3, unit="KB", digits=1),
    ]


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
