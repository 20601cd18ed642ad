"""Sandbox backends: commands that run a program under Bubblewrap or Landlock, and checks if this machine can."""

import ctypes
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from coterie.agents.sandbox import launch

SandboxBackend = Literal["bubblewrap", "landlock"]
"""Mechanism that enforces a sandbox: the program Bubblewrap (`bwrap`), or Landlock, a feature of the Linux kernel."""
PathAccess = Literal["hidden", "read", "write"]

PROGRAM = "bwrap"
TEMPORARY = "/tmp"  # noqa: S108 - the path inside the sandbox; outside it is a directory of the agent
RESOLVER = Path("/etc/resolv.conf")

_NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
_BASE = (
    "--die-with-parent",
    *_NAMESPACES,
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
)
# /run holds the sockets of services and of sessions, and a socket on a read-only mount can still be connected to.
_RUN = ("--tmpfs", "/run", "--ro-bind-try", "/run/current-system", "/run/current-system")
_CLOSED = "0111"
"""Permission bits of a hidden directory: commands can reach visible paths inside it, but not list it."""

LOWEST_LANDLOCK_VERSION = 3
"""Lowest usable Landlock version: the first that denies truncating a file without write access."""
PROBE_TIMEOUT = 20.0
"""Seconds after which a test run of Bubblewrap that has not ended counts as failed."""


def find_bubblewrap() -> str | None:
    """Return the absolute path of the program `bwrap`; None if it is not installed or not found by an absolute path."""
    found = shutil.which(PROGRAM)
    return found if found is not None and Path(found).is_absolute() else None


def bubblewrap_command(
    program: Sequence[str], directory: Path, views: Mapping[Path, PathAccess], temporary: Path, *, network: bool
) -> list[str]:
    """Return the command that runs *program* in *directory* under Bubblewrap, with the access to paths in *views*.

    *views* lists outer paths first; *temporary* is `/tmp` inside. All processes of the command end with it. Start it
    from the main thread: it is killed when the thread that started it ends.
    """
    return [
        find_bubblewrap() or PROGRAM,
        *_BASE,
        *_RUN,
        *_network(is_open=network),
        *_temporary(temporary),
        *(word for path, view in views.items() for word in _mounted(path, view)),
        *(
            word
            for path, view in views.items()
            if view == "hidden" and path.is_dir()
            for word in ("--remount-ro", str(path))
        ),
        "--chdir",
        str(directory),
        "--",
        *program,
    ]


def _network(*, is_open: bool) -> Iterator[str]:
    if not is_open:
        yield "--unshare-net"
        return
    target = RESOLVER.resolve()
    if target.is_relative_to("/run"):
        yield from ("--ro-bind-try", str(target), str(target))


def _temporary(temporary: Path) -> Iterator[str]:
    for place in (TEMPORARY, "/var/tmp"):  # noqa: S108 - paths that programs expect
        if Path(place).is_dir() and not Path(place).is_symlink():
            yield from ("--bind", str(temporary), place)


def _mounted(path: Path, view: PathAccess) -> Iterator[str]:
    name = str(path)
    if view == "hidden" and path.is_dir():
        yield from ("--perms", _CLOSED, "--tmpfs", name)
    elif view == "hidden":
        # Opening it fails, because the mount allows no devices.
        yield from ("--ro-bind", "/dev/null", name)
    else:
        yield from ("--bind-try" if view == "write" else "--ro-bind-try", name, name)


def landlock_version() -> int:
    """Return the version of Landlock that the running kernel supports; 0 if it does not support Landlock."""
    found: int = ctypes.CDLL(None, use_errno=True).syscall(launch.CREATE_RULESET, None, 0, launch.ASK_VERSION)
    return max(0, found)


def landlock_command(program: Sequence[str], views: Mapping[Path, PathAccess], *, network: bool) -> list[str]:
    """Return the Landlock launcher's command: it runs *program* with access by *views*; other paths are read-only."""
    places = [word for path, view in views.items() for word in (f"--{view}", str(path))]
    # Isolated from site packages, environment and working directory, so that no foreign module can be imported.
    start = [sys.executable, "-I", "-S", launch.__file__]
    return [*start, *(["--network"] if network else []), *places, "--", *program]


def unavailable_reason(way: SandboxBackend) -> str | None:
    """Return why this machine cannot use the sandbox backend *way*, and how to fix that; None if it can. Blocks."""
    return _bubblewrap_problem() if way == "bubblewrap" else _landlock_problem()


def available_backends() -> dict[SandboxBackend, str | None]:
    """Return for each sandbox backend the reason why this machine cannot use it, or None if it can. Blocks."""
    ways: tuple[SandboxBackend, ...] = ("bubblewrap", "landlock")
    return {way: unavailable_reason(way) for way in ways}


def _bubblewrap_problem() -> str | None:
    program = find_bubblewrap()
    if program is None:
        return f"the program {PROGRAM} is not installed; install the package bubblewrap{_landlock_hint()}"
    try:
        probe = subprocess.run(  # noqa: S603 - fixed arguments: every feature that a kernel may refuse, without mounts
            [program, *_BASE, *_RUN, "--unshare-net", "--", "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{PROGRAM} cannot be run: {exc}; reinstall the package bubblewrap{_landlock_hint()}"
    if probe.returncode == 0:
        return None
    error = (probe.stderr.strip().splitlines() or [f"{PROGRAM} exited with {probe.returncode}"])[-1]
    return f"{error}; unprivileged user namespaces must be allowed for {PROGRAM}{_landlock_hint()}"


def _landlock_problem() -> str | None:
    if platform.machine() not in launch.MACHINES:
        return 'Landlock is supported on x86_64 and aarch64 only; install bubblewrap and set sandbox = "bubblewrap"'
    version = landlock_version()
    if version >= LOWEST_LANDLOCK_VERSION:
        return None
    has = f"version {version} of Landlock" if version else "no Landlock"
    return (
        f"this kernel has {has}; version {LOWEST_LANDLOCK_VERSION} (Linux 6.2) is required; "
        'install bubblewrap and set sandbox = "bubblewrap"'
    )


def _landlock_hint() -> str:
    return "" if _landlock_problem() else ', or set sandbox = "landlock", which this kernel supports'
