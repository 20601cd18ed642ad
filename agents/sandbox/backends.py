"""Sandbox backends: command lines of Bubblewrap, and of the Landlock launcher."""

import ctypes
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from coterie.agents.sandbox import launch

PathAccess = Literal["hidden", "read", "write"]

PROGRAM = "bwrap"
TEMPORARY = "/tmp"  # noqa: S108 - the name that it has inside; outside it is a directory of the agent's own
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
# There the sockets of the machine's services are, and those of sessions: a read-only mount does not close a socket.
_RUN = ("--tmpfs", "/run", "--ro-bind-try", "/run/current-system", "/run/current-system")
_CLOSED = "0111"
"""The mode of a hidden directory: one can pass through it to what is shown below, and not look around."""


def find_bubblewrap() -> str | None:
    """Where the program is, if it is installed."""
    found = shutil.which(PROGRAM)
    return found if found is not None and Path(found).is_absolute() else None


def bubblewrap_command(
    program: Sequence[str], directory: Path, views: Mapping[Path, PathAccess], temporary: Path, *, network: bool
) -> list[str]:
    """What runs *program* in *directory* where *views*, the outer ones first, say what it sees.

    Its processes all end with it, and when the thread that starts it ends: that must be the main one.
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


def bubblewrap_probe(program: Sequence[str]) -> list[str]:
    """What runs *program* with all that the kernel may refuse, and no places."""
    return [find_bubblewrap() or PROGRAM, *_BASE, *_RUN, "--unshare-net", "--", *program]


def _network(*, is_open: bool) -> Iterator[str]:
    if not is_open:
        yield "--unshare-net"
        return
    target = RESOLVER.resolve()
    if target.is_relative_to("/run"):
        yield from ("--ro-bind-try", str(target), str(target))


def _temporary(temporary: Path) -> Iterator[str]:
    for place in (TEMPORARY, "/var/tmp"):  # noqa: S108 - names that programs know
        if Path(place).is_dir() and not Path(place).is_symlink():
            yield from ("--bind", str(temporary), place)


def _mounted(path: Path, view: PathAccess) -> Iterator[str]:
    name = str(path)
    if view == "hidden" and path.is_dir():
        yield from ("--perms", _CLOSED, "--tmpfs", name)
    elif view == "hidden":
        # A device that cannot be opened: the mount allows none.
        yield from ("--ro-bind", "/dev/null", name)
    else:
        yield from ("--bind-try" if view == "write" else "--ro-bind-try", name, name)


LEAST = 3
"""The version from which on a file cannot be emptied by one who may not write it."""


def landlock_version() -> int:
    """What the kernel offers; 0 for none."""
    found: int = ctypes.CDLL(None, use_errno=True).syscall(launch.CREATE_RULESET, None, 0, launch.ASK_VERSION)
    return max(0, found)


def is_known_machine() -> bool:
    """Whether the numbers of its system calls are known here."""
    return platform.machine() in launch.MACHINES


def landlock_command(program: Sequence[str], views: Mapping[Path, PathAccess], *, network: bool) -> list[str]:
    """What gives up all rights but those of *views* and then becomes *program*."""
    places = [word for path, view in views.items() for word in (f"--{view}", str(path))]
    # Without site, environment and the current directory there is nothing that others could put in its way.
    start = [sys.executable, "-I", "-S", launch.__file__]
    return [*start, *(["--network"] if network else []), *places, "--", *program]
