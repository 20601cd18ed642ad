"""Small requests per second, as JSON and as events, compared with the same HTTP layer with a fixed reply.

Both servers run in separate processes, and this process loads them in turn over keep-alive connections. Load and server
share the cores of the machine, so the CPU time of the server per request is the more reliable figure.
"""

from statistics import median

import attrs
import psutil
import trio

from benchmarks.figures import Figure, at_most
from benchmarks.fixed_reply_server import open_fixed_server
from benchmarks.raw_http import open_connection, small_request
from benchmarks.scripted_server import open_scripted_server

CONNECTIONS = 8
ROUNDS = 12
ROUND = 0.3
"""Seconds of load on one server in one round."""
WITHIN = 2.0


@attrs.define(eq=False)
class _Target:
    """One kind of request to one server, and its results."""

    port: int
    process: psutil.Process
    request: bytes
    rates: list[float] = attrs.field(factory=list)
    answered: int = 0
    cpu: float = 0.0
    """CPU seconds of the server."""

    async def load(self, seconds: float) -> None:
        answered, cpu, began = self.answered, self._cpu(), trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self._ask_until, began + seconds)
        self.cpu += self._cpu() - cpu
        self.rates.append((self.answered - answered) / (trio.current_time() - began))

    async def _ask_until(self, deadline: float) -> None:
        async with open_connection(self.port) as wire:
            while trio.current_time() < deadline:
                await wire.exchange(self.request)
                self.answered += 1

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def cpu_per_request(self) -> float:
        return self.cpu / self.answered * 1e6


async def measure() -> list[Figure]:
    """Measure rates and CPU time per request of both servers, and their ratios."""
    async with open_scripted_server() as ours, open_fixed_server() as fixed:
        pairs = {
            name: [
                _Target(server.port, psutil.Process(server.pid), small_request(stream=stream))
                for server in (ours, fixed)
            ]
            for name, stream in (("JSON", False), ("SSE", True))
        }
        targets = [target for pair in pairs.values() for target in pair]
        for target in targets:
            await _Target(target.port, target.process, target.request).load(ROUND / 2)
        for _ in range(ROUNDS):
            for target in targets:
                await target.load(ROUND)
    return [figure for name, (mine, bare) in pairs.items() for figure in _figures(name, mine, bare)]


def _figures(name: str, ours: _Target, fixed: _Target) -> list[Figure]:
    goal = at_most(WITHIN)
    # Interleaved rounds, so that a slow period of the machine affects both.
    slower = median(bare / own for own, bare in zip(ours.rates, fixed.rates, strict=True))
    return [
        Figure(name=f"{name}: embedded server", value=ours.rate, unit="requests/s", digits=0),
        Figure(name=f"{name}: fixed reply", value=fixed.rate, unit="requests/s", digits=0),
        Figure(name=f"{name}: fixed reply is faster by", value=slower, unit="x", goal=goal),
        Figure(name=f"{name}: embedded server, its CPU", value=ours.cpu_per_request, unit="us/request", digits=0),
        Figure(name=f"{name}: fixed reply, its CPU", value=fixed.cpu_per_request, unit="us/request", digits=0),
        Figure(name=f"{name}: CPU ratio", value=ours.cpu_per_request / fixed.cpu_per_request, unit="x", goal=goal),
    ]
