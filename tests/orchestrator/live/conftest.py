"""A session to look at, in a place of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.live.stage import Stage, open_stage
from tests.orchestrator.written import SteppingClock


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A session without a process; a second passes with everything that is written."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    with open_stage(tmp_path, SteppingClock()) as stage:
        yield stage
