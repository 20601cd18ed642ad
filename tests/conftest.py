"""Fixtures of every test: no test may leave a process behind."""

from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """Fail a test that ends with more children than it began with."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert not left, f"left behind: {left}"
