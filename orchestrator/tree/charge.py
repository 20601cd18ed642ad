"""A process in somebody's charge: what it is there for, what it does, and what became of it."""

import signal
from collections.abc import Callable
from typing import Literal

import attrs

from coterie.agents.control.words import Doing
from coterie.agents.events import AgentChanged, AgentState, Event
from coterie.agents.spawning import Spawned
from coterie.orchestrator.starting import Child
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.ordering import Order

ERRORS = "stderr.log"
"""In an agent's directory: what its process, and nothing else, had to say in the end."""

End = Literal["done", "failed", "killed"]


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of a process."""

    name: str
    incarnation: int
    end: End
    status: int
    """Its exit status, or the number of the signal that ended it, negative."""

    @property
    def words(self) -> str:
        """Why it ended, if not well."""
        if self.end == "killed":
            return f"Its process was ended by {signal.Signals(-self.status).name}."
        return "" if self.end == "done" else f"Its process ended with status {self.status}; {ERRORS} says more."


@attrs.define(eq=False)
class Charge:
    """A process and the one who owns it."""

    order: Order
    duty: Duty
    tell: Callable[[Event], None]
    child: Child | None = None
    state: AgentState | None = None

    def change(self, state: AgentState, what: str = "") -> None:
        """Say that it is in another state now."""
        if self.state == "stopping" and state not in ("done", "failed", "killed"):
            return  # what it does in its last moments does not matter any more
        self.state = state
        duty, pid = self.duty, None if self.child is None else self.child.pid
        self.tell(
            AgentChanged(
                name=duty.name, incarnation=duty.incarnation, state=state, what=what, pid=pid, parent=duty.parent
            )
        )

    def spawned(self) -> Spawned:
        """What who asked for it gets to know."""
        return Spawned(name=self.duty.name, incarnation=self.duty.incarnation, report=self.duty.report)

    def outcome(self) -> Outcome:
        """What became of it; it is reaped."""
        assert self.child is not None
        assert self.child.status is not None
        status = self.child.status
        return Outcome(name=self.duty.name, incarnation=self.duty.incarnation, end=_end(status), status=status)

    def hear(self, doing: Doing) -> None:
        """What the agent says of itself; also more than once."""
        if doing.activity != self.state or doing.what:
            self.change(doing.activity, doing.what)


def _end(status: int) -> End:
    if status < 0:
        return "killed"
    return "done" if status == 0 else "failed"
