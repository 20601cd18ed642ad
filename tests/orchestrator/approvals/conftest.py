"""A session whose approvals are looked at."""

from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.session_directory import SessionDirectory


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
    """A new one, in a home of its own."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return SessionDirectory.create(tmp_path / "project", Clock(), task="t", model="m")
