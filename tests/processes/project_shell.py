"""Project with a separate home directory, and the shell of its user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.events.agent_events import Event
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import SessionDirectory
from tests.processes import session_record

PATIENCE = 60.0
"""Timeout of commands in seconds."""
BYPASS = ("--permission-mode", "bypassPermissions")


@attrs.frozen
class ProjectShell:
    """Project in which a test runs `coterie`."""

    project: Path

    def coterie(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments), cwd=self.project, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command whose output is read by the test."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*arguments), cwd=self.project, stdout=pipe, stderr=pipe, text=True)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "coterie", *arguments]

    def model(self, script: str) -> tuple[str, ...]:
        """Return the options that make the model follow *script*."""
        path = self.project.parent / "script.yaml"
        path.write_text(script)
        return "--script", str(path)

    def write(self, name: str, text: str) -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def session(self) -> SessionDirectory:
        [directory] = self.project.parent.glob("home/projects/*/sessions/*")
        return SessionDirectory.find(directory.name)

    def texts(self, agent: str = "main") -> list[str]:
        """Return the text of each block in the conversation of *agent*."""
        return session_record.texts(self.session, agent)

    def events(self, kind: type[Event]) -> list[Any]:
        return session_record.events(self.session, kind)

    def state(self, agent: str) -> str | None:
        return next((glance.state for glance in read_overview(self.session).agents if glance.name == agent), None)

    def kill_root(self) -> None:
        """Kill the root of the session, which runs."""
        root = find_root(self.session)
        assert root is not None
        os.kill(root.pid, signal.SIGKILL)

    def has_no_processes(self) -> bool:
        """True if no process of the session is left."""
        return session_record.has_no_processes(self.session)

    def becomes_true(self, what: Callable[[], bool]) -> bool:
        """Wait for a condition; True if it became true in time."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if what():
                return True
            time.sleep(0.05)
        return False
