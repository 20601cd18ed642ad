"""Fixtures of the tests of tools."""

from pathlib import Path

import pytest

from coterie.agents.tools.tool import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty directory, which is also the scratch directory."""
    return Workspace(root=tmp_path, scratch=tmp_path)
