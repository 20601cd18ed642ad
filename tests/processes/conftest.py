"""Fixtures for sessions of real processes: a separate directory and home."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from coterie.orchestrator.doctor.orphan_processes import kill_orphan_processes
from tests.processes.project_shell import ProjectShell


@pytest.fixture
def project(tmp_path: Path, home: Path, runtime: Path) -> Path:
    """Working directory with a separate home directory."""
    del home, runtime
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def place(project: Path) -> ProjectShell:
    return ProjectShell(project)


@pytest.fixture
def no_strays(project: Path) -> Iterator[None]:
    """Kill processes of sessions that a failed test has left behind."""
    del project
    yield
    trio.run(kill_orphan_processes)
