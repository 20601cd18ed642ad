"""Fixtures for sessions of real processes: a separate directory and home."""

from pathlib import Path

import pytest

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
    """The project with the shell of its user."""
    return ProjectShell(project)
