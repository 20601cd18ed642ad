"""Checks for drafts and sockets whose process was killed."""

import os
import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trio

from coterie.mailbox.transports.bridge.socket_path import bridge_directory, hold_lock_file
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction
from coterie.process_identity import process_start_timestamp

_DRAFT = re.compile(r"\.coterie-([0-9]+)-[0-9]+\.draft")


def draft_findings(directory: Path) -> Iterator[DoctorFinding]:
    """The drafts below *directory* that nobody is writing. What cannot be listed is passed over."""
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            match = _DRAFT.fullmatch(name)
            if match is not None and _is_abandoned(path, int(match[1])):
                yield DoctorFinding(
                    kind="draft",
                    where=str(path),
                    what=f"process {match[1]} ended while it wrote this; the file that it was for is as it was before",
                    remedy=RepairAction(
                        description="remove it",
                        apply=partial(trio.to_thread.run_sync, partial(path.unlink, missing_ok=True)),
                    ),
                )


def is_draft(path: Path) -> bool:
    """Whether *path* has the name of a draft."""
    return _DRAFT.fullmatch(path.name) is not None


def _is_abandoned(path: Path, writer: int) -> bool:
    began = process_start_timestamp(writer)
    if began is None:
        return path.exists()
    try:
        written = path.stat().st_mtime
    except FileNotFoundError:
        return False
    # A process that began later than the draft was written has only got the writer's number.
    return began > written + 1


SUFFIX = ".sock"


def socket_findings(session: str | None = None) -> list[DoctorFinding]:
    """The dead sockets of this user, or that of one session. Raises `OSError`.

    The lock beside a socket is no finding: the kernel frees it when its holder dies, so a file that is left is taken
    over by whoever comes next. So it is with every lock file of ours, and none is looked for.
    """
    sockets = sorted(bridge_directory().glob(f"{session or '*'}{SUFFIX}"))
    return [_socket_finding(path) for path in sockets if path.is_socket() and _is_dead(path)]


def _socket_finding(path: Path) -> DoctorFinding:
    return DoctorFinding(
        kind="dead_socket",
        where=str(path),
        what="nobody listens on this socket",
        session=path.stem,
        remedy=RepairAction(description="remove it", apply=partial(trio.to_thread.run_sync, _remove_sync, path)),
    )


def _remove_sync(path: Path) -> None:
    # Whoever is about to listen holds the claim first, and removes the old socket itself.
    with hold_lock_file(path.with_suffix(".lock")) as is_ours:
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
