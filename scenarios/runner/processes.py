"""The processes of a play, found by the home that their environment names, and what can be done to them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.agents.home import HOME_VARIABLE
from coterie.orchestrator.root_record import process_began

_PARENT = 1
"""In /proc/PID/stat, counted from the state, which stands behind the name."""


@attrs.frozen(kw_only=True)
class Process:
    """One process that has not ended; a later one with its number began at another time."""

    pid: int
    began: int
    parent: int
    name: str


def find_processes(home: Path) -> list[Process]:
    """All that were started below this `COTERIE_HOME`, except this process. Blocks."""
    return list(_processes(os.fsencode(f"{HOME_VARIABLE}={home}")))


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal to this very process; whether it was there to get it."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Once it is held its number is its own, so what is looked at now is what the signal goes to.
        if process_began(process.pid) != process.began:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _processes(mark: bytes) -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            began = process_began(int(entry.name))
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            name = (entry / "comm").read_text().rstrip("\n")
            if began is not None:
                yield Process(pid=int(entry.name), began=began, parent=int(fields[_PARENT]), name=name)
