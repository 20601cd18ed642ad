"""Time from the call that starts a process to its first request: zygote, cold Python, multiprocessing.

Every child imports the modules of an agent, unless it is forked with them, opens a client and sends one request. The
three ways take turns. Private memory is what a child shares with no other process, at its entry and after its first
turn; reading it takes milliseconds and has separate rounds. At the end many children that hold a client are started,
and ended together.
"""

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from statistics import median

import attrs
import msgspec
import trio

from benchmarks import spawn_child
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.fixed_reply_server import FixedReply
from benchmarks.spawn_child import Memory, Task
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, ProcessStarter
from coterie.orchestrator.processes.process_starters import AGENT_PRELOADS, ExecStarter, open_zygote_starter
from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http

ROOT = Path(__file__).parents[1]
ROUNDS = 15
COLD_ROUNDS = 5
"""Number of rounds for cold starts, which take seconds."""
MANY = 1_000
MB = 1e6

Way = Callable[[Task], Awaitable[None]]
"""Function that starts a process for the task, and returns when it has ended."""


class NotingReply(FixedReply):
    """Sends the same response to every request, and records the time of the last one."""

    arrived = 0.0

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """As `FixedReply.handle`."""
        self.arrived = time.perf_counter()
        await super().handle(request, respond)


@attrs.define(eq=False)
class _Measured:
    """Measurements of one way to start a process."""

    way: Way
    rounds: int
    seconds: list[float] = attrs.field(factory=list)

    async def start_once(self, server: NotingReply, url: str) -> None:
        """Start one process."""
        began = time.perf_counter()
        await self.way(Task(url=url))
        self.seconds.append(server.arrived - began)

    async def weigh(self, url: str) -> list[Memory]:
        """Measure the memory of the same number of processes."""
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "report"
            return [await self._weigh_one(Task(url=url, report=str(report))) for _ in range(self.rounds)]

    async def _weigh_one(self, task: Task) -> Memory:
        await self.way(task)
        return Memory.read(Path(task.report))

    @property
    def milliseconds(self) -> float:
        """The median time."""
        return median(self.seconds) * 1e3


async def measure() -> list[Figure]:
    """Measure medians of each way, and the ratios to Coterie's."""
    server = NotingReply()
    os.environ["PYTHONPATH"] = str(ROOT)  # for the entry functions, which are in this folder
    async with _open_http(server) as url, open_zygote_starter([*AGENT_PRELOADS, spawn_child.__name__]) as warm:
        zygote = _Measured(_started_by(warm), ROUNDS)
        cold = _Measured(_started_by(ExecStarter()), COLD_ROUNDS)
        forkserver = _Measured(_forked_by_server(), ROUNDS)
        await _alternate([zygote, cold, forkserver], server, url)
        memory = await zygote.weigh(url)
        crowd = await _crowd(warm, url)
    return [*_figures(zygote, cold, forkserver), *_weights(memory), *crowd]


async def _alternate(ways: Sequence[_Measured], server: NotingReply, url: str) -> None:
    for number in range(-1, ROUNDS):
        for measured in ways:
            if number < measured.rounds:
                await measured.start_once(server, url)
    for measured in ways:  # the first round starts the fork server and fills the caches of the machine
        del measured.seconds[0]


def _figures(zygote: _Measured, cold: _Measured, forkserver: _Measured) -> list[Figure]:
    faster = cold.milliseconds / zygote.milliseconds
    return [
        Figure(name="zygote", value=zygote.milliseconds, unit="ms", digits=1, goal=at_most(30)),
        Figure(name="cold Python", value=cold.milliseconds, unit="ms", digits=0),
        Figure(name="multiprocessing forkserver", value=forkserver.milliseconds, unit="ms", digits=1),
        Figure(name="zygote is faster than cold by", value=faster, unit="x", digits=1, goal=at_least(20)),
    ]


def _weights(memory: Sequence[Memory]) -> list[Figure]:
    before = median(one.before for one in memory) / MB
    after = median(one.after for one in memory) / MB
    return [
        Figure(name="private memory at the entry", value=before, unit="MB", goal=at_most(5)),
        Figure(name="private memory after a turn", value=after, unit="MB", goal=at_most(14)),
    ]


@asynccontextmanager
async def _open_http(server: NotingReply) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_http, server)
        yield f"http://127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


def _start_of(entry: str, task: Task) -> ProcessStart:
    return ProcessStart(
        title="coterie benchmark",
        entry=f"{spawn_child.__name__}:{entry}",
        payload=msgspec.json.encode(task),
        directory=ROOT,
        environment=os.environ,
    )


def _started_by(starter: ProcessStarter) -> Way:
    async def start(task: Task) -> None:
        child = await starter.start(_start_of("take_a_turn", task), stderr=2)
        assert await child.wait() == 0

    return start


def _forked_by_server() -> Way:
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*spawn_child.MODULES, spawn_child.__name__])

    async def start(task: Task) -> None:
        process = context.Process(target=spawn_child.take_a_turn, args=(msgspec.json.encode(task),))
        process.start()
        await trio.lowlevel.wait_readable(process.sentinel)
        process.join()
        assert process.exitcode == 0

    return start


async def _crowd(starter: ProcessStarter, url: str) -> list[Figure]:
    """Start many processes at the same time, hold them all, and end them together."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # each child needs a descriptor
    children: list[ChildProcess] = []
    ours, theirs = os.pipe()

    async def start() -> None:
        children.append(await starter.start(_start_of("stay_idle", Task(url=url)), [theirs], stderr=2))

    began = time.perf_counter()
    async with trio.open_nursery() as nursery, trio.lowlevel.FdStream(ours) as signs:
        for _ in range(MANY):
            nursery.start_soon(start)
        heard = 0
        while heard < MANY:
            heard += len(await signs.receive_some())
    held = time.perf_counter()
    os.close(theirs)
    await _end(children)
    return [
        Figure(name=f"{MANY:,} idle agents are ready after", value=held - began, unit="s", goal=at_most(15)),
        Figure(name="and ended within", value=time.perf_counter() - held, unit="s", goal=at_most(10)),
    ]


async def _end(children: Sequence[ChildProcess]) -> None:
    for child in children:
        child.send_signal(signal.SIGTERM)
    for child in children:
        assert await child.wait() == -signal.SIGTERM


if __name__ == "__main__":
    # Run as a file, this module can import the others only from the root directory.
    os.chdir(Path(__file__).parents[1])
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks", "spawn", *sys.argv[1:]])  # noqa: S606 - our own program
