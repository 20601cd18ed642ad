"""CPU of one turn on a long history: the agent's loop with all its layers and files against a bare loop of the SDK.

Each loop is alone in a process of its own, and only that one's CPU counts; the embedded server is another. Run as a
module this is such a process: for each line `SIZE TURNS` on its standard input it prints the CPU of one turn in
milliseconds. Ours should grow with the history by no more than the write of ready bytes does, which it must pass. That
is asked of the one that never syncs: what a sync costs is the disk's, and differs by more than all else grows.
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
"""Of one loop in one round."""
SHARE = 1 / 3
NOISE = 0.3
"""Milliseconds that the growth of one loop differs by from run to run."""

_ROOT = Path(__file__).resolve().parents[1]

Rounds = Mapping[tuple[str, int], list[float]]
"""By loop and size: milliseconds for one turn in each round."""


async def measure() -> list[Figure]:
    """All loops at each size, the share of ours in the SDK's, and what each grows by."""
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
        # Round by round: what slows the machine down for a while then slows both.
        share = median(own / other for own, other in zip(rounds[name, COMPARED], bare, strict=True))
        yield Figure(name=f"{COMPARED // 1000} KB: {name}, of the {SDK}", value=share, unit="x", goal=goal)


def _growths(rounds: Rounds) -> Iterator[Figure]:
    first, second, *_, last = SIZES
    yield from _growth(rounds, first, second)
    # From the second size on: a history shorter than a chunk of the log is joined anew in each request.
    yield from _growth(rounds, second, last, flat=UNSYNCED)


def _growth(rounds: Rounds, least: int, most: int, flat: str | None = None) -> Iterator[Figure]:
    """By how much each loop grows; *flat* is the one that should by no more than the write of ready bytes does."""
    # Of the best rounds: whatever else the machine does can only add.
    growth = {name: min(rounds[name, most]) - min(rounds[name, least]) for name in LOOPS}
    for name, grown in growth.items():
        goal = at_most(growth[READY] + NOISE) if name == flat else None
        yield Figure(name=f"{least // 1000} to {most // 1000} KB: {name} grows by", value=grown, unit="ms", goal=goal)


@attrs.frozen
class _Worker:
    """A process with one loop."""

    _process: subprocess.Popen[str]

    async def cpu(self, size: int) -> float:
        """Let it take a round's turns; milliseconds of its CPU for one of them."""
        return await trio.to_thread.run_sync(self._ask, f"{size} {TURNS}\n")

    def _ask(self, line: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@asynccontextmanager
async def _open_worker(name: str, url: str) -> AsyncIterator[_Worker]:
    """A worker that is reaped when the block ends; it ends with us in any case, because its standard input does."""
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
