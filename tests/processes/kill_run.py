"""Worker processes that are killed at random while they work."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
LOOK_EVERY = 0.005


def whole_lines(path: Path) -> list[str]:
    """Return the complete lines of a log; a torn line was not written."""
    content = path.read_text() if path.exists() else ""
    return content[: content.rfind("\n") + 1].splitlines()


@attrs.define(eq=False)
class KillRun:
    """Workers by name; a killed worker is started again, until *kills* of them were killed."""

    workers: Mapping[str, Sequence[str]]
    """Arguments of each worker, a module of tests."""
    kills: int
    random: random.Random
    children: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)
    killed: list[str] = attrs.field(factory=list)

    def run(self, share_done: Callable[[], float], patience: float) -> None:
        """Return when the work is done; the kills are distributed over it."""
        deadline = time.monotonic() + patience
        try:
            for name in self.workers:
                self._start(name)
            while (share := share_done()) < 1:
                assert time.monotonic() < deadline, f"{share:.0%} after {patience} s"
                self._kill_and_restart(share)
                time.sleep(LOOK_EVERY)
        finally:
            for child in self.children.values():
                child.kill()
                child.wait()

    def _kill_and_restart(self, share: float) -> None:
        alive = [name for name, child in self.children.items() if child.poll() is None]
        if alive and len(self.killed) < min(self.kills, share * (self.kills + 2)):
            self.killed.append(self.random.choice(alive))
            self.children[self.killed[-1]].kill()
        for name, child in self.children.items():
            if child.poll() not in (None, 0):
                assert child.returncode == -9, f"{name} ended with {child.returncode}"
                self._start(name)

    def _start(self, name: str) -> None:
        self.children[name] = subprocess.Popen([sys.executable, "-m", *self.workers[name]], cwd=ROOT)
