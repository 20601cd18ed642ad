"""A checkout in which commands run."""

from pathlib import Path

import pytest

from coterie.agents.loop.model.catalog import MODEL_KEY_VARIABLES
from coterie.session_directory import SessionDirectory


@pytest.fixture
def checkout(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: an empty git checkout, without variables of the user that change commands."""
    for name in ("COTERIE_PROJECT_DIR", "COTERIE_MEMORY_DIR", "COTERIE_CLOCK", *MODEL_KEY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def newest_session(session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
    monkeypatch.chdir(tmp_path)
    return session
