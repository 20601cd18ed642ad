"""Fixture of the home directory for sessions of reports."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """COTERIE_HOME of the test; the working directory is the project."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"
