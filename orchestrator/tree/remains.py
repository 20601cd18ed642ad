"""What an agent leaves running when it dies, found by what it handed down: shells, and whatever these have started."""

import contextlib
import os
import signal
from pathlib import Path

from coterie.agents.pidfd import wait_ended
from coterie.orchestrator.starting import OURS

SESSION_VARIABLE = "COTERIE_SESSION"
"""The session's id, in the environment of every process that belongs to it."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Which start of which agent a process belongs to."""


def agent_tag(name: str, incarnation: int) -> str:
    """What `COTERIE_AGENT` says."""
    return f"{name}#{incarnation}"


async def end_remains(session: str, tag: str) -> None:
    """Kill all that the agent of this *tag* left to the root, and return when nothing of it is alive.

    What is killed may leave children of its own, so it is looked for until there is none.
    """
    while remains := [pid for pid in _children() if _belongs(pid, session, tag)]:
        for pid in remains:
            _kill(pid)
        for pid in remains:
            with contextlib.suppress(ProcessLookupError):  # reaped in the meantime
                await wait_ended(pid)
        OURS.reap_adopted()


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # With its group: a shell that is killed alone leaves the rest of its pipeline behind.
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def _belongs(pid: int, session: str, tag: str) -> bool:
    try:
        handed_down = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has ended, or another user's program was started
    wanted = {f"{SESSION_VARIABLE}={session}".encode(), f"{AGENT_VARIABLE}={tag}".encode()}
    return wanted <= set(handed_down)
