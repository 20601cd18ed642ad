"""Outcome of one process of an agent."""

import signal
from typing import Literal, get_args

import attrs

from coterie.agents.root_link.messages import RunFailed

STDERR_LOG = "stderr.log"
"""File in an agent's directory: the standard error of its process."""

ProcessEnd = Literal["done", "failed", "killed"]
PROCESS_ENDS: tuple[str, ...] = get_args(ProcessEnd)


@attrs.frozen(kw_only=True)
class AgentOutcome:
    """End of one process of an agent, and its cause."""

    name: str
    incarnation: int
    end: ProcessEnd
    status: int
    """Exit status of the process, or the negative number of the signal that ended it."""
    failure: RunFailed | None = None
    """Cause that the agent reported itself."""
    why: str = ""
    """Cause that the root knows: a stall, the number of starts, or the name of the agent that stopped it."""
    is_shared: bool = False
    """True if the agent was a task in the process of its parent."""

    @property
    def summary(self) -> str:
        """Causes of an end that was not a success, in sentences."""
        return " ".join(filter(None, (self.why, self._cause)))

    @property
    def _cause(self) -> str:
        if self.end == "killed" and self.is_shared:
            return "Its task in the process of its parent was killed."
        if self.end == "killed":
            return f"Its process was ended by {signal.Signals(-self.status).name}."
        if self.failure is not None:
            return f"It could not do its work: {self.failure.reason}."
        return "" if self.end == "done" else f"Its process ended with status {self.status}; {STDERR_LOG} says more."
