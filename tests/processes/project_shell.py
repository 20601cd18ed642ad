"""A project with a home directory of its own, and the shell of its user."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.orchestrator.session.overview import read_overview
from coterie.session_directory import SessionDirectory

PATIENCE = 60.0
"""Seconds that anything may take."""


@attrs.frozen
class ProjectShell:
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
    def session(self) -> SessionDirectory:
        """Its only one."""
        [directory] = self.project.parent.glob("home/projects/*/sessions/*")
        return SessionDirectory.find(directory.name)

    def state(self, agent: str) -> str | None:
        """What *agent* does now."""
        return next((glance.state for glance in read_overview(self.session).agents if glance.name == agent), None)

    def becomes_true(self, what: Callable[[], bool]) -> bool:
        """Whether *what* comes to be."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if what():
                return True
            time.sleep(0.05)
        return False
