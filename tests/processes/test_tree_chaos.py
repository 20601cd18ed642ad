"""Agents and their zygote are killed and stopped at random: nobody is left, nothing is lost, no budget is exceeded."""

import contextlib
import os
import random
import signal
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import trio

from coterie.orchestrator.starting import StartFailed
from tests.processes.trees import Tree, open_tree

AGENTS = 6
BUDGET = Decimal("0.60")
"""Dollars for a round: not enough for all of them at once, as a call that is under way holds a quarter of it."""
SCRIPT = """
default:
  - tools: [{Bash: {command: "sleep 0.05"}}]
  - tools: [{Bash: {command: "sleep 0.05 & sleep 0.02"}}]
  - {text: "done: {{agent}}", times: always}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:
    """A directory to work in, and a home of its own."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.mark.slow
async def test_a_tree_survives_what_is_done_to_its_processes(project: Path) -> None:
    await _play(project, seed=1, rounds=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
async def test_a_tree_survives_what_is_done_to_its_processes_for_long(project: Path, seed: int) -> None:
    await _play(project, seed=seed, rounds=10)


async def _play(project: Path, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    with trio.fail_after(60 * rounds):
        async with open_tree(project, SCRIPT, grace=0.3, budget=BUDGET * rounds) as tree:
            for number in range(rounds):
                names = [f"agent-{number}-{index}" for index in range(AGENTS)]
                await _torment(tree, names, chance)
                await _check(tree, names, BUDGET * rounds)


async def _torment(tree: Tree, names: list[str], chance: random.Random) -> None:
    with trio.move_on_after(chance.uniform(1.0, 3.0)):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(_run, tree, name)
            nursery.start_soon(_do_harm, tree, names, chance)


async def _run(tree: Tree, name: str) -> None:
    with contextlib.suppress(StartFailed):  # the zygote was killed, and the next one too
        await tree.supervisor.run_agent(tree.order(name))


async def _do_harm(tree: Tree, names: list[str], chance: random.Random) -> None:
    for _ in range(AGENTS):
        await trio.sleep(chance.uniform(0.0, 0.3))  # no synchronisation: when it strikes is the point
        pids = [event.pid for event in tree.events if event.name in names and event.pid]
        victim = chance.choice([*pids, tree.zygote])
        # What has ended and was reaped may be somebody else by now: only our own children are meant.
        if victim in {child.pid for child in psutil.Process().children()}:
            os.kill(victim, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)))


async def _check(tree: Tree, names: list[str], budget: Decimal) -> None:
    standing = tree.root.gate.standing()
    assert (standing.under_way, standing.waiting, tree.supervisor.running) == (0, 0, set())
    assert standing.session.reserved.dollars == 0
    assert standing.session.spent.dollars <= budget
    assert {tree.states(name)[-1] for name in names} <= {"done", "failed", "killed"}
    left = [child for child in psutil.Process().children(recursive=True) if child.pid != tree.zygote]
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []
    # Whoever had a process is told of once, by itself or by the root.
    begun = {event.name for event in tree.events if event.name in names and event.pid}
    assert len(await tree.mail()) == len(begun)
