"""Fixtures of the tests of permissions."""

from pathlib import Path

import pytest

from coterie.agents.tools.tool import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty directory, whose scratch directory does not exist yet."""
    return Workspace(root=tmp_path, scratch=tmp_path / "scratch")
