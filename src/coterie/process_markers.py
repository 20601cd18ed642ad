"""Environment variables that mark the processes of a session and of an agent."""

SESSION_VARIABLE = "COTERIE_SESSION"
"""The session's id, in the environment of every process that belongs to it."""
AGENT_VARIABLE = "COTERIE_AGENT"
"""Which start of which agent a process belongs to."""


def agent_tag(name: str, incarnation: int) -> str:
    """What `COTERIE_AGENT` says."""
    return f"{name}#{incarnation}"
