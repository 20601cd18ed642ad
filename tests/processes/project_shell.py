"""Project with a separate home directory, and the shell of its user."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.orchestrator.session.overview import read_overview
from coterie.session_directory import SessionDirectory

PATIENCE = 60.0
"""Timeout of commands in seconds."""


@attrs.frozen
class ProjectShell:
    """Project in which a test runs `coterie`."""

    project: Path

    def coterie(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments), cwd=self.project, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def command(self, *arguments: str) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-P", "-m", "coterie", *arguments]

    def model(self, script: str) -> tuple[str, ...]:
        """Return the options that make the model follow *script*."""
        path = self.project.parent / "script.yaml"
        path.write_text(script)
        return "--script", str(path)

    @property
    def session(self) -> SessionDirectory:
        """The only session."""
        [directory] = self.project.parent.glob("home/projects/*/sessions/*")
        return SessionDirectory.find(directory.name)

    def state(self, agent: str) -> str | None:
        """Return the current state of *agent*."""
        return next((glance.state for glance in read_overview(self.session).agents if glance.name == agent), None)

    def becomes_true(self, what: Callable[[], bool]) -> bool:
        """Wait for a condition; True if it became true in time."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if what():
                return True
            time.sleep(0.05)
        return False
