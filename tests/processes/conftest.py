"""What sessions of real processes need: a place that is theirs alone."""

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Path:
    """A directory to work in, and a home of its own."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory
