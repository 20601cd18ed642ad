"""Starts are cancelled and processes are killed at random: nothing is left behind."""

import random
from collections import Counter
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from coterie.orchestrator.processes.child_process import CHILDREN, run_reaper
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.processes.process_starters import ZygoteStarter, open_zygote_starter
from tests import warm_start
from tests.descriptors import count_descriptors
from tests.processes import child_entries
from tests.processes.starter_root import make_start

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATIENCES = (0.005, 0.02, 0.05, 20, 20)
"""Seconds after which a start is cancelled; most are faster."""
STATUS = 3


@attrs.define(eq=False)
class Chaos:
    """Children that are started and killed."""

    warm: ZygoteStarter
    random: random.Random
    outcomes: Counter[str] = attrs.field(factory=Counter)

    async def run(self, rounds: int, at_once: int) -> None:
        """Return when every start has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_reaper)
            nursery.start_soon(self.kill)
            for _ in range(rounds):
                async with trio.open_nursery() as starts:
                    for _ in range(at_once):
                        starts.start_soon(self.start, self.random.choice(PATIENCES))
            nursery.cancel_scope.cancel()

    async def start(self, patience: float) -> None:
        """Start a child and wait for its end, or cancel."""
        outcome = "given up"
        with trio.move_on_after(patience):
            try:
                child = await self.warm.start(make_start("exit_with", str(STATUS).encode()))
            except StartFailed:
                outcome = "failed"
            else:
                with trio.CancelScope(shield=True):
                    outcome = "done" if await child.wait() == STATUS else "killed"
        self.outcomes[outcome] += 1

    async def kill(self) -> None:
        """Kill a child at random, or seldom the zygote."""
        while True:
            await trio.sleep(self.random.random() * 0.03)
            processes = _children()
            victim = self.random.choice(processes) if processes else None
            if victim is not None and (victim.pid != self.warm.zygote or self.random.random() < 0.05):
                try:
                    victim.kill()
                except psutil.NoSuchProcess:
                    continue


def _children() -> list[psutil.Process]:
    """Descendants of this process except the warm process that programs of other tests are forked from."""
    return [child for child in psutil.Process().children(recursive=True) if child.pid != warm_start.warm_pid()]


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 3), pytest.param(2, 60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
async def test_nothing_is_left_of_starts_that_failed(seed: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = count_descriptors()
    with trio.fail_after(15 * rounds):
        async with open_zygote_starter([child_entries.__name__]) as warm:
            chaos = Chaos(warm, random.Random(seed))
            await chaos.run(rounds, 20)
        while CHILDREN.adopted():  # an adopted child may still be ending
            CHILDREN.reap_adopted()
            await trio.lowlevel.checkpoint()
    assert not _children()
    assert count_descriptors() == before
    assert chaos.outcomes.total() == 20 * rounds
    assert chaos.outcomes["done"]
    assert chaos.outcomes["given up"]
