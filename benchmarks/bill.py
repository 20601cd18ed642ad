"""Input cost of a team relative to the optimum, for forks, fresh workers, and a waiting parent.

Each case runs three times: as designed, with agents without a common gateway, and with agents that do not start with
the same bytes. All runs are compared with the optimum of the first.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import click
import msgspec
import trio

from benchmarks.bill_optimum import optimum
from benchmarks.bill_team import MODEL, TURNS, FixedResultTool, TeamServer, Way, open_team_server
from benchmarks.figures import Figure, Goal, at_most, rows
from coterie.agents.layers.prompt_cache.keepalive import PURPOSE, CacheKeepalive
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.forks.fork import create_fork_point
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.pipeline import Steps, arrange
from coterie.agents.loop.run_result import RunLimits
from coterie.clock import Clock

WAYS = {"over_optimum": Way(), "without_gate": Way(has_gate=False), "without_sharing": Way(shares=False)}
SYSTEM = "You work on one code base, together with others. " * 1_000
CONTEXT = "The project has a rule for everything. " * 400
CODE = "a line of code of about forty characters\n" * 5_000
FORKS = 10
WORKERS = 20
CHILDREN = 3
WAIT = 1_200.0
"""Seconds that a parent waits for its children."""
DELAY = 0.05
"""Seconds before a reply begins; until then no other request can read its cache entry."""

LOOK: dict[str, Any] = {"tools": [{"Look": {}}]}
PARENT = [LOOK, LOOK, {"text": "I have read it and share out the work."}, {"text": "Done."}]
CHILD = [{"tools": [{"List": {}}], "delay": DELAY}, {"text": "Looked.", "delay": DELAY}]
SCRIPT = {"main": [*PARENT, {"text": "x", "when": {"purpose": PURPOSE}, "times": "always"}], "default": CHILD}
LOOKING, LISTING = FixedResultTool(name="Look", result=CODE), FixedResultTool(name="List", result="one\ntwo\n")


@attrs.frozen(kw_only=True)
class Case:
    """A kind of team, and the goal for its cost relative to the optimum."""

    name: str
    goal: Goal
    play: Callable[[TeamServer], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Billed:
    """Input cost of a case in each setup, in dollars."""

    case: Case
    optimum: Decimal
    dollars: dict[str, Decimal]

    def over_optimum(self, way: str) -> float:
        """Cost relative to the optimum."""
        return float(self.dollars[way] / self.optimum)

    def to_mapping(self) -> dict[str, Any]:
        """Return the case as JSON data."""
        ratios = {way: self.over_optimum(way) for way in self.dollars}
        goal = self.case.goal
        return {
            "name": self.case.name,
            **ratios,
            "goal": goal.limit,
            "met": goal.is_met_by(ratios["over_optimum"]),
            "optimum_usd": format(self.optimum, "f"),
            "input_usd": {way: format(dollars, "f") for way, dollars in self.dollars.items()},
        }


async def run_forks(bench: TeamServer) -> None:
    """Forks of a parent with a long conversation, all started at the same time."""
    async with _open_parent(bench) as parent:
        await _run_forks(bench, parent, FORKS)


async def run_workers(bench: TeamServer) -> None:
    """Fresh workers of one type, all started at the same time."""
    async with trio.open_nursery() as nursery:
        for number in range(WORKERS):
            nursery.start_soon(_run_worker, bench, f"worker-{number}")


async def run_waiting(bench: TeamServer) -> None:
    """A parent that continues after its children, which share its conversation, have reported."""
    async with _open_parent(bench) as parent:
        await _run_forks(bench, parent, CHILDREN)
        await _wait(bench, parent)
        parent.agent.append_message("user", [text_block("All children have reported.")])
        await run_loop(parent.agent, TURNS)


CASES = (
    Case(name=f"{FORKS} forks of a parent of 100K tokens", goal=at_most(1.05), play=run_forks),
    Case(name=f"{WORKERS} fresh workers of one type", goal=at_most(1.05), play=run_workers),
    Case(name=f"a parent that waits {WAIT / 60:.0f} minutes", goal=at_most(1.15), play=run_waiting),
)


async def bill() -> list[Billed]:
    """Measure every case in every setup."""
    return [await _bill(case) for case in CASES]


async def measure() -> list[Figure]:
    """Return the ratios as figures."""
    return [
        Figure(
            name=f"{billed.case.name}, {way.replace('_', ' ')}",
            value=billed.over_optimum(way),
            unit="x",
            digits=3,
            goal=billed.case.goal if way == "over_optimum" else None,
        )
        for billed in await bill()
        for way in WAYS
    ]


async def _bill(case: Case) -> Billed:
    dollars: dict[str, Decimal] = {}
    best: Decimal | None = None
    for name, way in WAYS.items():
        async with open_team_server(way, SCRIPT, LOOKING, LISTING) as bench:
            await case.play(bench)
            dollars[name] = bench.input_dollars()
            if best is None:
                needed = [sent for sent in bench.sent if sent.purpose != PURPOSE]
                best = optimum(needed, MODEL.price(0))
    assert best is not None
    assert dollars["over_optimum"] >= best, "the optimum is none"
    return Billed(case=case, optimum=best, dollars=dollars)


@attrs.define(eq=False)
class _Passing:
    """Simulated time that advances while tasks sleep, for a limited number of seconds."""

    left: float = WAIT
    is_over: trio.Event = attrs.field(factory=trio.Event)

    async def sleep_until(self, clock: Clock, at: float) -> None:
        """Move *clock* to *at*; sleeps beyond the end never return."""
        seconds = min(self.left, at - clock.now())
        clock.advance(seconds)
        self.left -= seconds
        if self.left <= 0:
            self.is_over.set()
            await trio.sleep_forever()


@attrs.frozen(kw_only=True)
class _Parent:
    """A parent that has read 100,000 tokens, with its fork point, and its activity while it waits."""

    agent: Agent
    point: ForkPoint
    keeper: CacheKeepalive
    passing: _Passing


@asynccontextmanager
async def _open_parent(bench: TeamServer) -> AsyncIterator[_Parent]:
    passing = _Passing()
    async with bench.open_client("main") as client:
        agent = bench.fresh("main", SYSTEM, CONTEXT, "Read it, and share out the work.", client=client)
        keeper = CacheKeepalive(agent, passing.sleep_until)
        agent.pipeline = arrange(Steps(keepalive=keeper))
        async with keeper.open():
            await run_loop(agent, RunLimits(turns=3))
            yield _Parent(agent=agent, point=create_fork_point(agent), keeper=keeper, passing=passing)


async def _run_forks(bench: TeamServer, parent: _Parent, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(bench.run_fork, parent.agent, parent.point, number, SYSTEM)


async def _run_worker(bench: TeamServer, name: str) -> None:
    async with bench.open_client(name) as client:
        await run_loop(bench.fresh(name, SYSTEM, CONTEXT, f"You are {name}: do your part.", client=client), TURNS)


async def _wait(bench: TeamServer, parent: _Parent) -> None:
    """Advance the time, with the keepalive calls that a waiting agent makes."""
    if not bench.way.has_gate:
        bench.server.clock.advance(WAIT)
        return
    with trio.fail_after(60):
        async with parent.keeper.waiting():
            await parent.passing.is_over.wait()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the cases as JSON.")
def main(*, as_json: bool) -> None:
    """Print the cost of each case relative to its optimum. A missed goal is reported but no failure."""
    if as_json:
        click.echo(msgspec.json.encode({"cases": [billed.to_mapping() for billed in trio.run(bill)]}).decode())
        return
    for row in rows(trio.run(measure)):
        click.echo(row)


if __name__ == "__main__" and not __package__:
    # Run as a file, this module can import the others only from the root directory.
    os.chdir(Path(__file__).parents[1])
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.bill", *sys.argv[1:]])  # noqa: S606 - our own program


if __name__ == "__main__":
    main()
