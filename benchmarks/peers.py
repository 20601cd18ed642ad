"""The same work by Coterie and other frameworks on the same embedded server: CPU, growth, time, memory, dollars.

There are two kinds of work. In the conversation, one warm process runs an agent that calls a tool for a page of a file
in every turn. In the fan-out, many agents run concurrently, measured from the start of the program to its end. The
other frameworks run agents as tasks of one process, as in their documentation. Coterie runs processes with a root,
mail, transcripts and a gateway, or tasks of the lead's process (`process: shared`). Prompts are equally long. Dollars
are computed by the server. Each framework is installed into a separate environment in the user's cache directory.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import click
import trio

from benchmarks.figures import Figure, aligned
from benchmarks.peer_coterie import fan_out
from benchmarks.peer_environments import FRAMEWORKS, Environment, NotMeasured, installed
from coterie.orchestrator.processes.api_server_process import ApiServerHandle, open_api_server

MODEL = "claude-opus-5-5"
SYSTEM_TOKENS = 4_000
TOKEN = 4
"""Size in characters, as the server counts."""
PROSE = "You work through a code base with care, look before you judge, and say in a few words what you have found. "
WARM_TURNS = 10
"""Number of first turns that are not counted: they connect and fill the caches of the interpreter."""
CONVERSATION, FAN_OUT = "conversation", "fan-out"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    CONVERSATION: ("ms CPU a turn", "first turns", "last turns", "growth", "wall s", "MB", "dollars"),
    FAN_OUT: ("wall s", "CPU s", "MB", "dollars"),
}
OURS, OURS_SHARED = "Coterie", "Coterie, shared process"
NOTES = (
    "first and last turns: ms of CPU for one of the first and of the last tenth; growth: what the history added to it.",
    "cached: with the framework's own options for the prompt cache; autogen has none. Coterie always caches.",
    "fan-out, Coterie: a lead, and each agent a process that can be killed, limited and resumed alone, with its",
    "  transcript and mail on disk; shared: the same, as tasks of the lead's process. The others: tasks of one",
    "  process, and nothing is kept.",
)
_ROOT = Path(__file__).resolve().parents[1]


@attrs.frozen(kw_only=True)
class Size:
    """Amount of work."""

    peers: tuple[str, ...] = tuple(FRAMEWORKS)
    turns: int = 200
    """Model calls of the conversation."""
    agents: int = 100
    agent_turns: int = 5
    """Model calls of each agent of the fan-out."""


async def measure(size: Size | None = None) -> list[Figure]:
    """Measure all available frameworks; failures are reported on standard error."""
    size = size or Size()
    environments = [each for name in size.peers if (each := await _installed(name)) is not None]
    return [*await _conversations(size, environments), *await _fan_outs(size, environments)]


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Return one table for each of the two kinds of work."""
    for work, columns in COLUMNS.items():
        ours = [figure for figure in figures if figure.name.startswith(f"{work}, ")]
        if ours:
            yield f"  {work}"
            named = [attrs.evolve(figure, name=figure.name.removeprefix(f"{work}, ")) for figure in ours]
            yield from aligned(named, columns)
    yield from (f"  {note}" for note in NOTES)


async def _installed(name: str) -> Environment | None:
    try:
        return await installed(FRAMEWORKS[name])
    except NotMeasured as exc:
        _print_progress(str(exc))
        return None


async def _conversations(size: Size, environments: Sequence[Environment]) -> list[Figure]:
    figures: list[Figure] = []
    async with open_work(size.turns, SYSTEM_TOKENS) as work:
        _print_progress(f"{CONVERSATION}: {OURS}")
        figures += conversation_figures(OURS, size.turns, *await work.by_us())
    for environment, caches in _ways(environments):
        subject = _subject(environment, caches=caches)
        _print_progress(f"{CONVERSATION}: {subject}")
        try:
            async with open_work(size.turns, SYSTEM_TOKENS) as work:
                figures += conversation_figures(subject, size.turns, *await work.by(environment, caches=caches))
        except NotMeasured as exc:
            _print_progress(str(exc))
    return figures


async def _fan_outs(size: Size, environments: Sequence[Environment]) -> list[Figure]:
    figures: list[Figure] = []
    prompt = 0
    for subject, is_shared in ((OURS, False), (OURS_SHARED, True)):
        _print_progress(f"{FAN_OUT}: {subject}")
        ours = await fan_out(size.agents, size.agent_turns, is_shared=is_shared, model=MODEL)
        prompt = prompt or ours.prompt
        figures += _of_fan_out(subject, ours.wall, ours.cpu, ours.memory, ours.dollars)
    for environment, caches in _ways(environments):
        subject = _subject(environment, caches=caches)
        _print_progress(f"{FAN_OUT}: {subject}")
        try:
            # Prompts of the others are padded to the length of Coterie's, which have many tools and longer texts.
            async with open_work(size.agent_turns, prompt, is_warm=False) as work:
                began = time.perf_counter()
                used, dollars = await work.by(environment, caches=caches, agents=size.agents)
                wall = time.perf_counter() - began
        except NotMeasured as exc:
            _print_progress(str(exc))
        else:
            figures += _of_fan_out(subject, wall, used["cpu"], used["memory"], dollars)
    return figures


def _ways(environments: Sequence[Environment]) -> Iterator[tuple[Environment, bool]]:
    for environment in environments:
        yield environment, False
        if environment.framework.caches:
            yield environment, True


def _subject(environment: Environment, *, caches: bool) -> str:
    return f"{environment.framework.name} {environment.version}{', cached' if caches else ''}"


def conversation_figures(subject: str, turns: int, used: Mapping[str, Any], dollars: float) -> list[Figure]:
    """Return the resource use of a conversation with this number of turns. Raises `NotMeasured` if it was another."""
    marks = used["marks"]
    if len(marks) != turns - 1:
        raise NotMeasured(subject, f"it called the tool {len(marks)} times in {turns} turns")
    spent = [1e3 * (later - earlier) for earlier, later in pairwise(marks)][WARM_TURNS:]
    part = max(1, len(spent) // 10)
    first, last = median(spent[:part]), median(spent[-part:])
    values = (median(spent), first, last, last - first, used["wall"], used["memory"], dollars)
    units = ("ms", "ms", "ms", "ms", "s", "MB", "$")
    return _figures(CONVERSATION, subject, values, units, digits=(2, 2, 2, 2, 1, 0, 2))


def _of_fan_out(subject: str, *values: float) -> list[Figure]:
    return _figures(FAN_OUT, subject, values, ("s", "s", "MB", "$"), digits=(1, 1, 0, 2))


def _figures(
    work: str, subject: str, values: Sequence[float], units: Sequence[str], digits: Sequence[int]
) -> list[Figure]:
    rows = zip(COLUMNS[work], values, units, digits, strict=True)
    return [
        Figure(name=f"{work}, {subject}: {column}", value=value, unit=unit, digits=places)
        for column, value, unit, places in rows
    ]


@attrs.frozen(kw_only=True)
class Work:
    """Servers with a conversation to measure and one for the warm-up."""

    server: ApiServerHandle
    warm: ApiServerHandle | None
    system: Path
    turns: int

    def order(self, *, agents: int = 1, caches: bool = True) -> dict[str, Any]:
        """Return the order for a driver process."""
        return {
            "url": self.server.url,
            "warm_url": None if self.warm is None else self.warm.url,
            "model": MODEL,
            "system": str(self.system),
            "turns": self.turns,
            "agents": agents,
            "caches": caches,
        }

    async def by(self, environment: Environment, *, caches: bool, agents: int = 1) -> tuple[dict[str, Any], float]:
        """Run a framework; return its resource use and its bill. Raises `NotMeasured`."""
        used = await environment.run(self.order(agents=agents, caches=caches))
        return used, await self._bill(environment.framework.name, agents)

    async def by_us(self) -> tuple[dict[str, Any], float]:
        """Run Coterie."""
        command = [sys.executable, "-m", "benchmarks.peer_coterie", json.dumps(self.order())]
        done = await trio.run_process(command, cwd=_ROOT, capture_stdout=True)
        return json.loads(done.stdout), await self._bill(OURS, 1)

    async def _bill(self, who: str, agents: int) -> float:
        requests = await self.server.requests()
        answered = [entry for entry in requests if entry["status"] == 200]
        if len(answered) != agents * self.turns:
            raise NotMeasured(who, f"{len(answered)} of {agents * self.turns} model calls were answered")
        return float(sum(Decimal(entry["cost_usd"]) for entry in answered))


@asynccontextmanager
async def open_work(turns: int, prompt: int, *, is_warm: bool = True) -> AsyncIterator[Work]:
    """Start servers that play *turns* turns for each agent, with a system prompt of this number of tokens."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        system = directory / "system.txt"
        system.write_text((PROSE * (1 + prompt * TOKEN // len(PROSE)))[: prompt * TOKEN])
        long, short = _script(directory / "long.yaml", turns), _script(directory / "short.yaml", 3)
        # Lenient, because some clients send parameters that this model rejects; bills are the same.
        async with open_api_server(long, "--lenient") as server:
            if not is_warm:
                yield Work(server=server, warm=None, system=system, turns=turns)
                return
            async with open_api_server(short, "--lenient") as warm:
                yield Work(server=server, warm=warm, system=system, turns=turns)


def _script(path: Path, turns: int) -> Path:
    calls = [
        {"text": "Next, this part.", "tools": [{"read": {"path": f"src/part_{n}.py", "first": 1, "last": 40}}]}
        for n in range(turns - 1)
    ]
    path.write_text(json.dumps({"default": [*calls, {"text": "I have seen it."}]}))
    return path


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@click.command()
@click.option("--peers", default=",".join(FRAMEWORKS), show_default=True, help="Frameworks, separated by commas.")
@click.option(
    "--turns", type=click.IntRange(30), default=Size().turns, show_default=True, help="Turns of the conversation."
)
@click.option(
    "--agents", type=click.IntRange(1, 999), default=Size().agents, show_default=True, help="Agents of the fan-out."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(*, peers: str, turns: int, agents: int, as_json: bool) -> None:
    """Compare Coterie with other frameworks. Frameworks that cannot be installed are reported, the others measured."""
    names = tuple(filter(None, (name.strip() for name in peers.split(","))))
    if unknown := [name for name in names if name not in FRAMEWORKS]:
        raise click.UsageError(f"{unknown[0]!r} is none of {', '.join(FRAMEWORKS)}")
    figures = trio.run(measure, Size(peers=names, turns=turns, agents=agents))
    if as_json:
        click.echo(json.dumps([figure.to_mapping() for figure in figures]))
        return
    for line in table(figures):
        click.echo(line)


if __name__ == "__main__" and not __package__:
    # Run as a file, this module can import the others only from the root directory.
    os.chdir(Path(__file__).parents[1])
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.peers", *sys.argv[1:]])  # noqa: S606 - our own program


if __name__ == "__main__":
    main()
