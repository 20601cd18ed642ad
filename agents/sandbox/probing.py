"""What this machine can hold, found out by trying."""

import subprocess
from typing import Literal

from coterie.agents.sandbox import bubblewrap, landlock
from coterie.agents.sandbox.sandbox import Way

PATIENCE = 20.0
"""Seconds after which a kernel that does not answer counts as one that refuses."""


def obstacle(way: Way) -> str | None:
    """Why commands cannot be held this way here, and what would be right; None if they can. Blocks."""
    return _obstacle_to_bubblewrap() if way == "bubblewrap" else _obstacle_to_landlock()


def offers() -> dict[Way, str | None]:
    """Each way, and what stands against it. Blocks."""
    ways: tuple[Way, ...] = ("bubblewrap", "landlock")
    return {way: obstacle(way) for way in ways}


def _obstacle_to_bubblewrap() -> str | None:
    if bubblewrap.find_program() is None:
        return (
            f"the program {bubblewrap.PROGRAM} is not installed; install the package bubblewrap{_otherwise('landlock')}"
        )
    try:
        tried = subprocess.run(  # noqa: S603 - our own words
            bubblewrap.probe(["/bin/sh", "-c", ":"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{bubblewrap.PROGRAM} cannot be run: {exc}{_otherwise('landlock')}"
    if tried.returncode == 0:
        return None
    said = (tried.stderr.strip().splitlines() or [f"it ended with {tried.returncode}"])[-1]
    return f"{said}; unprivileged user namespaces must be allowed for it{_otherwise('landlock')}"


def _obstacle_to_landlock() -> str | None:
    if not landlock.is_known_machine():
        return 'Landlock is used on x86_64 and aarch64 alone here; install bubblewrap and set sandbox = "bubblewrap"'
    version = landlock.version()
    if version >= landlock.LEAST:
        return None
    has = f"version {version} of Landlock" if version else "no Landlock"
    return (
        f"this kernel has {has}, and it takes version {landlock.LEAST}, of Linux 6.2; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _otherwise(way: Literal["landlock"]) -> str:
    return "" if _obstacle_to_landlock() else f', or set sandbox = "{way}", which this kernel offers'
