"""Whether a command was started by its user or by an agent: what only the user may do is not done for an agent."""

import os
from pathlib import Path

from coterie.orchestrator.tree.remains import AGENT_VARIABLE, handed_down_to

ROOT_MODULE = b"coterie.orchestrator.root_process"
"""In the command line of a root, which adopts what its agents leave behind."""


def is_of_an_agent() -> bool:
    """Whether this process was started, at whatever distance, by an agent of a session.

    A process can take a name out of its own environment, but not out of those above it.
    """
    pid = os.getpid()
    while pid > 1:
        handed_down = handed_down_to(pid) or set()
        if any(each.startswith(f"{AGENT_VARIABLE}=".encode()) for each in handed_down):
            return True
        try:
            if ROOT_MODULE in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return True  # it has ended: nobody can say whose it was
    return False
