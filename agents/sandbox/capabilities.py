"""Sandbox capabilities of this machine, found by trying each backend."""

import subprocess

from coterie.agents.sandbox import backends
from coterie.agents.sandbox.sandbox import SandboxBackend

PROBE_TIMEOUT = 20.0
"""Seconds after which a probe without a result counts as a failure."""


def unavailable_reason(way: SandboxBackend) -> str | None:
    """Return why a sandbox backend cannot be used here and how to fix that; None if it can. Blocks."""
    return _bubblewrap_problem() if way == "bubblewrap" else _landlock_problem()


def available_backends() -> dict[SandboxBackend, str | None]:
    """Map each sandbox backend to the reason why it cannot be used; None if it can. Blocks."""
    ways: tuple[SandboxBackend, ...] = ("bubblewrap", "landlock")
    return {way: unavailable_reason(way) for way in ways}


def _bubblewrap_problem() -> str | None:
    if backends.find_bubblewrap() is None:
        return f"the program {backends.PROGRAM} is not installed; install the package bubblewrap{_landlock_hint()}"
    try:
        probe = subprocess.run(  # noqa: S603 - fixed arguments
            backends.bubblewrap_probe(["/bin/sh", "-c", ":"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{backends.PROGRAM} cannot be run: {exc}{_landlock_hint()}"
    if probe.returncode == 0:
        return None
    error = (probe.stderr.strip().splitlines() or [f"{backends.PROGRAM} exited with {probe.returncode}"])[-1]
    return f"{error}; unprivileged user namespaces must be allowed for it{_landlock_hint()}"


def _landlock_problem() -> str | None:
    if not backends.is_known_machine():
        return 'Landlock is supported on x86_64 and aarch64 only; install bubblewrap and set sandbox = "bubblewrap"'
    version = backends.landlock_version()
    if version >= backends.LOWEST_LANDLOCK_VERSION:
        return None
    has = f"version {version} of Landlock" if version else "no Landlock"
    return (
        f"this kernel has {has}; version {backends.LOWEST_LANDLOCK_VERSION} (Linux 6.2) is required; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _landlock_hint() -> str:
    return "" if _landlock_problem() else ', or set sandbox = "landlock", which this kernel supports'
