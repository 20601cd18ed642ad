"""Environment variables that mark the processes of a session and of an agent."""

from pathlib import Path

SESSION_VARIABLE = "COTERIE_SESSION"
"""The session's id, in the environment of every process that belongs to it."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Which start of which agent a process belongs to."""


def agent_tag(name: str, incarnation: int) -> str:
    """What `COTERIE_AGENT` says."""
    return f"{name}#{incarnation}"


_VARIABLES_END = 47
"""In /proc/PID/stat, counted from behind the state: the address at which the variables end."""


def read_environment(pid: int) -> set[bytes] | None:
    """The variables that *pid* was started with; None while it is about to execute its program, and shows none.

    Nothing of one that has ended, or is another user's by now.
    """
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
        if not content and _is_in_exec(pid):
            return None
        # If there was nothing, it may have been executed in between.
        content = content or Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return set(filter(None, content.split(b"\0")))


def _is_in_exec(pid: int) -> bool:
    """Whether the kernel has taken the old program from *pid*, and not put the new one's variables in place."""
    state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return state not in (b"Z", b"X") and fields[_VARIABLES_END] == b"0"
