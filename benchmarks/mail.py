"""Mail between processes with 1 KB per message, compared with other ways: rate, latency, and cost of a backlog.

All peers take turns, round by round, on the same disk and CPUs; differences below 1.5x are noise. The file mailbox is
used through its whole public API: a message is an envelope that is signed, checked against the roster, stored, verified
and acknowledged. The others carry the bare text with the usual libraries. SQLite and Redis also carry signed envelopes,
and Redis is also used with its bare protocol, as an upper limit. A latency is half a round trip. The cost of a backlog
is that of a message sent, received and acknowledged while this number of others is pending, relative to 100 pending
ones.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

import attrs
import trio

from benchmarks.figures import Figure, at_least, at_most, rows
from benchmarks.mail_backlog import BACKLOGS, Cost, measure_costs
from benchmarks.mail_peers import PEERS
from benchmarks.mail_peers.coterie_file import OURS_POWER, OURS_PROCESS
from benchmarks.mail_peers.peer import Peer, Survives
from benchmarks.mail_peers.redis_streams import REDIS_EVERYSEC
from benchmarks.mail_runs import Flow, Placement, measure_flow, measure_latency, placements

ROUNDS = 5
WRITERS = (1, 8)
P50_LIMIT = 0.3
"""In milliseconds."""
NOISE = 1.5
TIMES_REDIS = 3.0
ON_DISK = "/var/tmp"  # noqa: S108 - /tmp may be memory, where a sync costs nothing
COLUMNS = (
    "survives",
    "1 writer",
    "8 writers",
    "out of order",
    "p50",
    "p99",
    "few wait",
    "many wait",
    "how many",
    "growth",
)
LEGEND = (
    f"writers: messages a second; p50, p99: ms; few, many: us a message while {BACKLOGS[0]:,} or {BACKLOGS[1]:,} wait, "
    "or as many as could be stored in time"
)


@attrs.define(eq=False)
class _Measured:
    """Measurements of one peer."""

    peer: Peer
    flows: dict[int, dict[Placement, list[Flow]]] = attrs.field(
        factory=lambda: {writers: {placement: [] for placement in placements(writers)} for writers in WRITERS}
    )
    latencies: list[list[float]] = attrs.field(factory=list)
    """Sorted seconds of each round."""
    costs: list[Cost] = attrs.field(factory=list)

    async def measure_round(self) -> None:
        """Measure rates and latency once more."""
        for writers, placed in self.flows.items():
            for placement, flows in placed.items():
                with tempfile.TemporaryDirectory(dir=ON_DISK) as directory:
                    async with self.peer.open_post(Path(directory)) as post:
                        flows.append(await trio.to_thread.run_sync(measure_flow, post, writers, placement))
        with tempfile.TemporaryDirectory(dir=ON_DISK) as directory:
            async with self.peer.open_post(Path(directory)) as post:
                self.latencies.append(await trio.to_thread.run_sync(measure_latency, post))

    async def pile_up(self) -> None:
        """Measure the cost of a backlog."""
        with tempfile.TemporaryDirectory(dir=ON_DISK) as directory:
            async with self.peer.open_post(Path(directory)) as post:
                self.costs = await trio.to_thread.run_sync(measure_costs, post)

    def rate(self, writers: int) -> float:
        """Messages per second, averaged over all placements."""
        return mean(median(flow.rate for flow in flows) for flows in self.flows[writers].values())

    def latency(self, percent: int) -> float:
        """In milliseconds."""
        return median(latencies[len(latencies) * percent // 100] for latencies in self.latencies) * 1e3

    @property
    def disordered(self) -> int:
        """Total over all rounds."""
        return sum(flow.disordered for placed in self.flows.values() for flows in placed.values() for flow in flows)


async def measure() -> list[Figure]:
    """Measure every available peer, and compare the file mailbox with them."""
    for peer in PEERS:
        if peer.absence is not None:
            _progress(f"{peer.name} is skipped: {peer.absence}")
    measured = {peer.name: _Measured(peer) for peer in PEERS if peer.absence is None}
    for number in range(ROUNDS):
        for each in measured.values():
            _progress(f"round {number + 1} of {ROUNDS}: {each.peer.name} ...")
            await each.measure_round()
    for each in measured.values():
        _progress(f"backlog: {each.peer.name} ...")
        await each.pile_up()
    return [*(figure for each in measured.values() for figure in _described(each)), *_compared(measured)]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return a line for each peer, then its guarantees, then the goals."""
    cells: dict[str, dict[str, str]] = {peer.name: {"survives": peer.survives} for peer in PEERS}
    for figure in figures:
        name, colon, column = figure.name.partition(": ")
        if colon:
            cells[name][column] = f"{figure.value:,.{figure.digits}f}"
    measured = {name: row for name, row in cells.items() if len(row) > 1}
    lines = [("", *COLUMNS), *((name, *(row.get(c, "-") for c in COLUMNS)) for name, row in measured.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        right = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        yield f"  {first:<{widths[0]}}  {'  '.join(right)}"
    yield f"  ({LEGEND})"
    for peer in PEERS:
        yield f"  {peer.name:<{widths[0]}}  {peer.absence or peer.promises}"
    yield from rows([figure for figure in figures if figure.goal is not None or ": " not in figure.name])


def _described(measured: _Measured) -> Iterator[Figure]:
    name = measured.peer.name
    is_ours = measured.peer in (OURS_PROCESS, OURS_POWER)
    for writers in WRITERS:
        column = f"{writers} writer{'s' if writers > 1 else ''}"
        yield Figure(name=f"{name}: {column}", value=measured.rate(writers), unit="messages/s", digits=0)
    in_order = at_most(0) if is_ours else None
    yield Figure(name=f"{name}: out of order", value=measured.disordered, unit="messages", digits=0, goal=in_order)
    soon = at_most(P50_LIMIT) if measured.peer is OURS_PROCESS else None
    yield Figure(name=f"{name}: p50", value=measured.latency(50), unit="ms", digits=3, goal=soon)
    yield Figure(name=f"{name}: p99", value=measured.latency(99), unit="ms", digits=3)
    if measured.costs:
        few, many = measured.costs
        yield Figure(name=f"{name}: few wait", value=few.both * 1e6, unit="us/message", digits=0)
        yield Figure(name=f"{name}: many wait", value=many.both * 1e6, unit="us/message", digits=0)
        yield Figure(name=f"{name}: how many", value=many.waiting, unit="messages", digits=0)
        flat = at_most(NOISE) if is_ours else None
        yield Figure(name=f"{name}: growth", value=many.both / few.both, unit="x", goal=flat)


def _compared(measured: dict[str, _Measured]) -> Iterator[Figure]:
    classes: list[tuple[Peer, tuple[Survives, ...]]] = [
        (OURS_PROCESS, ("kill -9", "power cut")),
        (OURS_POWER, ("power cut",)),
    ]
    for mine, as_durable in classes:
        ours = measured[mine.name]
        durable = [
            each
            for each in measured.values()
            if each.peer.survives in as_durable and each.peer not in (OURS_PROCESS, OURS_POWER)
        ]
        for writers in WRITERS:
            best = max((each for each in durable if not each.peer.is_bare), key=lambda each: each.rate(writers))
            name = f"{mine.name}, {writers} at once, of the best other durable one, {best.peer.name}"
            yield Figure(name=name, value=ours.rate(writers) / best.rate(writers), unit="x", goal=at_least(1))
            for bare in (each for each in durable if each.peer.is_bare and each.peer.survives == mine.survives):
                name = f"{mine.name}, {writers} at once, of {bare.peer.name}"
                yield Figure(name=name, value=ours.rate(writers) / bare.rate(writers), unit="x")
    if redis := measured.get(REDIS_EVERYSEC.name):
        ratio = measured[OURS_PROCESS.name].rate(1) / redis.rate(1)
        yield Figure(name="ours, one message at a time, of Redis", value=ratio, unit="x", goal=at_least(TIMES_REDIS))


def _progress(line: str) -> None:
    print(f"mail: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Run as a file, this module can import the others only from the root directory.
    os.chdir(Path(__file__).parents[1])
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks", "mail", *sys.argv[1:]])  # noqa: S606 - our own program
