"""CPU time of one turn on a long history: the agent loop with all layers and files against a bare loop of the SDK.

Each loop has its own process, and only the CPU time of that process counts; the embedded server is another one. As a
module, this file is such a process: for each line `SIZE TURNS` of standard input it prints the CPU milliseconds of one
turn. Coterie's loop should grow with the history by no more than a write of ready bytes does, which it must do anyway.
The goal applies to the loop without syncs, because the cost of a sync varies by more than everything else grows.
"""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import attrs
import trio

from benchmarks.figures import Figure, at_most
from benchmarks.scripted_server import open_scripted_server
from benchmarks.turn_loops import CALL, LOOPS, OURS, READY, SDK, UNSYNCED, TakeTurns

SIZES = (100_000, 200_000, 400_000, 800_000)
COMPARED = 400_000
ROUNDS = 10
TURNS = 3
"""CPU time of one loop in one round."""
SHARE = 1 / 3
NOISE = 0.3
"""Milliseconds by which the growth of one loop varies between runs."""

_ROOT = Path(__file__).resolve().parents[1]

Rounds = Mapping[tuple[str, int], list[float]]
"""Milliseconds per turn in each round, by loop and size."""


async def measure() -> list[Figure]:
    """Measure all loops at each size, the ratio of Coterie to the SDK, and the growth of each."""
    rounds: dict[tuple[str, int], list[float]] = {(name, size): [] for size in SIZES for name in LOOPS}
    async with open_scripted_server(tools=[CALL]) as server, AsyncExitStack() as stack:
        workers = {name: await stack.enter_async_context(_open_worker(name, server.url)) for name in LOOPS}
        # The first round connects and builds the SDK's validators.
        for number in range(ROUNDS + 1):
            for (name, size), taken in rounds.items():
                spent = await workers[name].cpu(size)
                if number > 0:
                    taken.append(spent)
    return [*_totals(rounds), *_shares(rounds), *_growths(rounds)]


def _totals(rounds: Rounds) -> Iterator[Figure]:
    for (name, size), taken in rounds.items():
        yield Figure(name=f"{size // 1000} KB: {name}", value=median(taken), unit="ms")


def _shares(rounds: Rounds) -> Iterator[Figure]:
    bare = rounds[SDK, COMPARED]
    for name, goal in ((UNSYNCED, None), (OURS, at_most(SHARE))):
        # Interleaved rounds, so that a slow period of the machine affects both.
        share = median(own / other for own, other in zip(rounds[name, COMPARED], bare, strict=True))
        yield Figure(name=f"{COMPARED // 1000} KB: {name}, of the {SDK}", value=share, unit="x", goal=goal)


def _growths(rounds: Rounds) -> Iterator[Figure]:
    first, second, *_, last = SIZES
    yield from _growth(rounds, first, second)
    # From the second size on: a history shorter than a chunk of the log is joined again for each request.
    yield from _growth(rounds, second, last, flat=UNSYNCED)


def _growth(rounds: Rounds, least: int, most: int, flat: str | None = None) -> Iterator[Figure]:
    """Return the growth of each loop; *flat* should grow by no more than writing ready bytes does."""
    # Of the best rounds, because other load on the machine only adds time.
    growth = {name: min(rounds[name, most]) - min(rounds[name, least]) for name in LOOPS}
    for name, grown in growth.items():
        goal = at_most(growth[READY] + NOISE) if name == flat else None
        yield Figure(name=f"{least // 1000} to {most // 1000} KB: {name} grows by", value=grown, unit="ms", goal=goal)


@attrs.frozen
class _Worker:
    """A process with one loop."""

    _process: subprocess.Popen[str]

    async def cpu(self, size: int) -> float:
        """Run the turns of one round and return the CPU milliseconds per turn."""
        return await trio.to_thread.run_sync(self._ask, f"{size} {TURNS}\n")

    def _ask(self, line: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@asynccontextmanager
async def _open_worker(name: str, url: str) -> AsyncIterator[_Worker]:
    """Start a worker that is reaped when the block ends; closing its standard input also ends it."""
    command = [sys.executable, "-m", "benchmarks.loop_cpu", name, url]
    with subprocess.Popen(  # noqa: ASYNC220 - starting blocks for milliseconds only
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield _Worker(process)


async def _work(name: str, url: str) -> None:
    loops: dict[int, TakeTurns] = {}
    async with AsyncExitStack() as stack:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            size, turns = map(int, line.split())
            if size not in loops:
                loops[size] = await stack.enter_async_context(LOOPS[name](url, size))
            began = time.process_time()
            await loops[size](turns)
            print((time.process_time() - began) * 1e3 / turns, flush=True)


if __name__ == "__main__":
    trio.run(_work, sys.argv[1], sys.argv[2])
