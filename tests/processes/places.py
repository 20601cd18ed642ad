"""A project with a home of its own, and the shell of its user: what tests of commands stand on."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.orchestrator.overview import look_at
from coterie.orchestrator.session import Session

PATIENCE = 60.0
"""Seconds that anything may take."""


@attrs.frozen
class Place:
    """Where a test runs `coterie`."""

    project: Path

    def coterie(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, run to its end."""
        return subprocess.run(
            self.command(*arguments), cwd=self.project, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def command(self, *arguments: str) -> list[str]:
        """What the shell runs."""
        return [sys.executable, "-P", "-m", "coterie", *arguments]

    def model(self, script: str) -> tuple[str, ...]:
        """The options with which the model follows *script*."""
        path = self.project.parent / "script.yaml"
        path.write_text(script)
        return "--script", str(path)

    @property
    def session(self) -> Session:
        """Its only one."""
        [directory] = self.project.parent.glob("home/projects/*/sessions/*")
        return Session.find(directory.name)

    def state(self, agent: str) -> str | None:
        """What *agent* does now."""
        return next((glance.state for glance in look_at(self.session).agents if glance.name == agent), None)

    def is_so(self, what: Callable[[], bool]) -> bool:
        """Whether *what* comes to be."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if what():
                return True
            time.sleep(0.05)
        return False
