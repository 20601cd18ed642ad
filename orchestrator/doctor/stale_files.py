"""Checks for drafts and sockets of killed processes."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from coterie.mailbox.transports.bridge.socket_path import bridge_directory, hold_lock_file
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, blocking_repair
from coterie.process_identity import process_start_timestamp

_DRAFT = re.compile(r"\.coterie-([0-9]+)-[0-9]+\.draft")


def draft_findings(directory: Path) -> Iterator[DoctorFinding]:
    """Find drafts below *directory* that no process is writing. Ignores unreadable directories."""
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            match = _DRAFT.fullmatch(name)
            if match is not None and _is_abandoned(path, int(match[1])):
                yield DoctorFinding(
                    kind="draft",
                    where=str(path),
                    what=f"process {match[1]} ended while writing this draft; the file to be replaced is unchanged",
                    remedy=blocking_repair("remove it", path.unlink, True),  # noqa: FBT003 - missing_ok
                )


def is_draft(path: Path) -> bool:
    """Return True if *path* is named like a draft."""
    return _DRAFT.fullmatch(path.name) is not None


def _is_abandoned(path: Path, writer: int) -> bool:
    began = process_start_timestamp(writer)
    if began is None:
        return path.exists()
    try:
        written = path.stat().st_mtime
    except FileNotFoundError:
        return False
    # A process that started after the draft was written only reuses the pid of the writer.
    return began > written + 1


SUFFIX = ".sock"


def socket_findings(session: str | None = None) -> list[DoctorFinding]:
    """Find dead sockets of this user, or the one of one *session*. Raises `OSError`.

    Lock files are never a finding: the kernel releases a lock when its holder dies, and the file is reused.
    """
    sockets = sorted(bridge_directory().glob(f"{session or '*'}{SUFFIX}"))
    return [
        DoctorFinding(
            kind="dead_socket",
            where=str(path),
            what="no process listens on this socket",
            session=path.stem,
            remedy=blocking_repair("remove it", _remove_sync, path),
        )
        for path in sockets
        if path.is_socket() and _is_dead(path)
    ]


def _remove_sync(path: Path) -> None:
    # A process that is about to listen holds the lock and removes the old socket itself.
    with hold_lock_file(path.with_suffix(".lock")) as is_ours:
        if is_ours:
            path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        # Do not wait if the queue of a listener is full: the error proves that it listens.
        peer.settimeout(0)
        try:
            peer.connect(str(path))
        except ConnectionRefusedError:
            return True
        except (BlockingIOError, FileNotFoundError):
            return False
    return False
