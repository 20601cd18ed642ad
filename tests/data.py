"""Recorded data outside the repository, read by some tests."""

from pathlib import Path


def absent(path: Path) -> str:
    """Return the reason to skip a test whose data file *path* is missing."""
    return f"{path.resolve()} is missing: recorded data is not in the repository; put it there to run this test"
