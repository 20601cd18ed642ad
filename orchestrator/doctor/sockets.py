"""Sockets of bridges on which nobody listens: whoever made them was killed."""

import socket
from functools import partial
from pathlib import Path

import trio

from coterie.mailbox.bridge.place import bridge_directory, claim
from coterie.orchestrator.doctor.finding import Finding, Remedy

SUFFIX = ".sock"


def socket_findings(session: str | None = None) -> list[Finding]:
    """The dead sockets of this user, or that of one session. Raises `OSError`.

    The lock beside a socket is no finding: the kernel frees it when its holder dies, so a file that is left is taken
    over by whoever comes next. So it is with every lock file of ours, and none is looked for.
    """
    sockets = sorted(bridge_directory().glob(f"{session or '*'}{SUFFIX}"))
    return [_finding(path) for path in sockets if path.is_socket() and _is_dead(path)]


def _finding(path: Path) -> Finding:
    return Finding(
        kind="dead_socket",
        where=str(path),
        what="nobody listens on this socket",
        session=path.stem,
        remedy=Remedy(words="remove it", apply=partial(trio.to_thread.run_sync, _remove_sync, path)),
    )


def _remove_sync(path: Path) -> None:
    # Whoever is about to listen holds the claim first, and removes the old socket itself.
    with claim(path.with_suffix(".lock")) as is_ours:
        if is_ours:
            path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        # So that a listener whose queue is full is not waited for: it is one.
        peer.settimeout(0)
        try:
            peer.connect(str(path))
        except ConnectionRefusedError:
            return True
        except (BlockingIOError, FileNotFoundError):
            return False
    return False
