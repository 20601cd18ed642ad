"""Fixture of a session for tests of the board."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.cli.live.board_session import BoardSession, open_board_session
from tests.orchestrator.session_writer import SteppingClock


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoardSession]:
    """A session without a process; its clock advances a second with every write."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    with open_board_session(tmp_path, SteppingClock()) as stage:
        yield stage
