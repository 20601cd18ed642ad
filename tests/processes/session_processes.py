"""Search for the processes of a session."""

from pathlib import Path

import psutil

from coterie.process_identity import SESSION_VARIABLE
from coterie.session_directory import SessionDirectory


def has_no_processes(session: SessionDirectory) -> bool:
    """True if no process of *session* is left."""
    mark = f"{SESSION_VARIABLE}={session.id}".encode()
    return not any(mark in _environment(process.pid) for process in psutil.process_iter())


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
