"""Bubblewrap: commands in namespaces of their own, for which the places are mounted anew."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coterie.agents.sandbox.view import View

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


def find_program() -> str | None:
    """Where the program is, if it is installed."""
    found = shutil.which(PROGRAM)
    return found if found is not None and Path(found).is_absolute() else None


def command(
    program: Sequence[str], directory: Path, views: Mapping[Path, View], temporary: Path, *, network: bool
) -> list[str]:
    """What runs *program* in *directory* where *views*, the outer ones first, say what it sees.

    Its processes all end with it, and when the thread that starts it ends: that must be the main one.
    """
    return [
        find_program() or PROGRAM,
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


def probe(program: Sequence[str]) -> list[str]:
    """What runs *program* with all that the kernel may refuse, and no places."""
    return [find_program() or PROGRAM, *_BASE, *_RUN, "--unshare-net", "--", *program]


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


def _mounted(path: Path, view: View) -> Iterator[str]:
    name = str(path)
    if view == "hidden" and path.is_dir():
        yield from ("--perms", _CLOSED, "--tmpfs", name)
    elif view == "hidden":
        # A device that cannot be opened: the mount allows none.
        yield from ("--ro-bind", "/dev/null", name)
    else:
        yield from ("--bind-try" if view == "write" else "--ro-bind-try", name, name)
