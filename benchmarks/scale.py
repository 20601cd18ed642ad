"""A coordinator with a hundred worker processes: time, memory, events, dollars, and CPU time by part.

Each worker reads a file and then waits until all workers are there. Their work is small, so that the overhead of the
session is visible: the root, the zygote, the lead and the command, compared with the processes of the workers. The
embedded server is counted separately.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from benchmarks.figures import Figure, at_least
from benchmarks.process_monitor import ProcessMonitor, children_cpu
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario

WORKERS = 100
SECONDS = 600
HOLD = 15
"""Seconds that each worker sleeps: longer than it takes to start all of them."""


async def measure() -> list[Figure]:
    """One run, monitored from outside."""
    with (
        tempfile.TemporaryDirectory() as directory,
        open_environment(_scenario(Path(directory)), 0, is_kept=False) as stage,
    ):
        story, watch = _scenario(Path(directory)), ProcessMonitor(stage)
        began, before = time.perf_counter(), children_cpu()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            played, failures = await run_scenario(story, stage)
            nursery.cancel_scope.cancel()
        seconds = time.perf_counter() - began
        failures += [failure for each in story.expectations for failure in each.check(played)]
        if failures:
            raise AssertionError(failures[0].reason)
        return list(_figures(played, watch, seconds, children_cpu() - before))


def _figures(played: ScenarioRun, watch: ProcessMonitor, seconds: float, cpu: float) -> Iterator[Figure]:
    done = [name for name, state in played.states.items() if name.startswith("w-") and state == "done"]
    spent = sum_costs(played.ledger)
    yield Figure(name="workers that are done", value=len(done), unit="", digits=0, goal=at_least(WORKERS))
    yield Figure(name="at the same time", value=watch.most_workers, unit="processes", digits=0, goal=at_least(WORKERS))
    yield Figure(name="wall time", value=seconds, unit="s", digits=1)
    yield Figure(name="memory of all processes at most", value=watch.most_memory, unit="MB", digits=0)
    yield Figure(name="events", value=len(played.events), unit="", digits=0)
    yield Figure(name="events a second", value=len(played.events) / seconds, unit="/s", digits=0)
    yield Figure(name="model calls", value=spent.requests, unit="", digits=0)
    yield Figure(name="dollars", value=float(spent.cost), unit="$", digits=4)
    yield Figure(name="read from the cache", value=100 * spent.cached_share, unit="% of input", digits=1)
    others = {who: watch.cpu(who) for who in ("root", "zygote", "lead", "server", "command")}
    workers = cpu - sum(others.values())
    yield Figure(name="CPU of the workers", value=workers, unit="s", digits=1)
    for who, used in others.items():
        yield Figure(name=f"CPU of the {who}", value=used, unit="s", digits=1)
    orchestration = sum(used for who, used in others.items() if who != "server")
    yield Figure(name="orchestration for a worker", value=1e3 * orchestration / WORKERS, unit="ms of CPU", digits=0)
    yield Figure(name="orchestration / workers", value=orchestration / workers, unit="x")


def _scenario(directory: Path) -> Scenario:
    """Return the script: all workers start in one turn, read a file, and report; the lead does not reply to reports."""
    names = [f"w-{number:03}" for number in range(1, WORKERS + 1)]
    calls = [
        {"Agent": {"name": name, "description": "count", "prompt": f"Count, as {name}.", "run_in_background": True}}
        for name in names
    ]
    facts = {
        "about": f"{WORKERS} workers at once.",
        "workspace": {"files": {"numbers.txt": "1\n2\n3\n"}},
        "coordinator": True,
        "model": "opus",
        "permission_mode": "bypassPermissions",
        "task": "Count.",
        "settings": {"agents": {"at_once": WORKERS + 1}},
        "script": {
            "main": [{"text": "All at once.", "tools": calls}, {"text": "They are at work.", "times": "always"}],
            "default": [
                {"tools": [{"Read": {"file_path": "numbers.txt"}}, {"Bash": {"command": f"sleep {HOLD}"}}]},
                {"text": "Three.", "times": "always"},
            ],
        },
        "limits": {"seconds": SECONDS},
        "expect": [{"exit_code": 0}, {"mail": {"exactly_once": True}}, {"strays": 0}],
    }
    path = directory / "scale.yaml"
    path.write_bytes(msgspec.json.encode(facts))
    return load_scenario(path)
