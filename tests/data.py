"""Recorded data that some tests read, kept beside the checkout."""

from pathlib import Path


def absent(path: Path) -> str:
    """The reason to skip a test that reads *path*, which is not there."""
    return f"{path.resolve()} is missing: recorded data is not in the repository; put it there to run this test"
