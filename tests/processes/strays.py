"""Processes of a session, as anybody on the machine can see them."""

from pathlib import Path

import psutil

from coterie.orchestrator.session import Session
from coterie.orchestrator.tree.remains import SESSION_VARIABLE


def has_no_processes(session: Session) -> bool:
    """Whether nothing of *session* is left."""
    mark = f"{SESSION_VARIABLE}={session.id}".encode()
    return not any(mark in _environment(process.pid) for process in psutil.process_iter())


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
