"""Sandbox capabilities of this machine, found out by trying."""

import subprocess
from typing import Literal

from coterie.agents.sandbox import backends
from coterie.agents.sandbox.sandbox import SandboxBackend

PATIENCE = 20.0
"""Seconds after which a kernel that does not answer counts as one that refuses."""


def unavailable_reason(way: SandboxBackend) -> str | None:
    """Why commands cannot be held this way here, and what would be right; None if they can. Blocks."""
    return _bubblewrap_problem() if way == "bubblewrap" else _landlock_problem()


def available_backends() -> dict[SandboxBackend, str | None]:
    """Each way, and what stands against it. Blocks."""
    ways: tuple[SandboxBackend, ...] = ("bubblewrap", "landlock")
    return {way: unavailable_reason(way) for way in ways}


def _bubblewrap_problem() -> str | None:
    if backends.find_bubblewrap() is None:
        return (
            f"the program {backends.PROGRAM} is not installed; install the package bubblewrap{_otherwise('landlock')}"
        )
    try:
        tried = subprocess.run(  # noqa: S603 - our own words
            backends.bubblewrap_probe(["/bin/sh", "-c", ":"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{backends.PROGRAM} cannot be run: {exc}{_otherwise('landlock')}"
    if tried.returncode == 0:
        return None
    said = (tried.stderr.strip().splitlines() or [f"it ended with {tried.returncode}"])[-1]
    return f"{said}; unprivileged user namespaces must be allowed for it{_otherwise('landlock')}"


def _landlock_problem() -> str | None:
    if not backends.is_known_machine():
        return 'Landlock is used on x86_64 and aarch64 alone here; install bubblewrap and set sandbox = "bubblewrap"'
    version = backends.landlock_version()
    if version >= backends.LEAST:
        return None
    has = f"version {version} of Landlock" if version else "no Landlock"
    return (
        f"this kernel has {has}, and it takes version {backends.LEAST}, of Linux 6.2; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _otherwise(way: Literal["landlock"]) -> str:
    return "" if _landlock_problem() else f', or set sandbox = "{way}", which this kernel offers'
