"""Fixtures of the supervisor's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.session_directory import SessionDirectory
from tests.orchestrator.supervisor.process_samples import open_root_services


@pytest.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RootServices]:
    """Services of the root of a new session."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    session = SessionDirectory.create(tmp_path, Clock(), task="t", model="m")
    async with open_root_services(session) as opened:
        yield opened
