"""Fixtures of the supervisor's tests."""

from collections.abc import AsyncIterator

import pytest

from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.session_directory import SessionDirectory
from tests.orchestrator.supervisor.process_samples import open_root_services


@pytest.fixture
async def services(session: SessionDirectory) -> AsyncIterator[RootServices]:
    async with open_root_services(session) as opened:
        yield opened
