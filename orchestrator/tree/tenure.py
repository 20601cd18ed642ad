"""The time in which an agent has somebody who runs it: one process after another, until it is over or stopped."""

import attrs
import trio

from coterie.agents.errors import AgentError
from coterie.agents.nearest import suggestion
from coterie.agents.spawning import Spawner
from coterie.orchestrator.tree.charge import Charge, Outcome
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.restarting import Attempts


@attrs.define(eq=False)
class NotAtWork(AgentError):
    """Nobody runs an agent of this name, so it cannot be stopped."""

    name: str
    at_work: tuple[str, ...]
    """Who could be."""

    def __str__(self) -> str:
        return f"{self.name!r} is not at work; {suggestion(self.name, self.at_work)}"


@attrs.define(eq=False)
class Tenure:
    """An agent that is run, or that waits for a message to be run again."""

    order: Order
    done: Outcome | None = None
    """What became of it under an earlier root, if it is only kept for messages."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """All that is done for it; to cancel it is to stop the agent, and its subagents with it."""
    attempts: Attempts | None = None
    """At its latest task; None before the first."""
    spawner: Spawner | None = None
    """Who starts its subagents, while it is at its latest task; None before the first."""
    stopped_by: str | None = None
    is_over: trio.Event = attrs.field(factory=trio.Event)

    def stop(self, by: str) -> None:
        """Let it end, because somebody wants so; who said so first is named."""
        self.stopped_by = self.stopped_by or by
        self.scope.cancel()

    @property
    def reason_to_end(self) -> str:
        """What it is told when it is asked to end."""
        return f"{self.stopped_by} stopped it" if self.stopped_by else "the session ends, or who started it has ended"

    @property
    def charge(self) -> Charge | None:
        """Its latest process; None before the first."""
        return None if self.attempts is None else self.attempts.charge

    @property
    def outcome(self) -> Outcome | None:
        """What became of its latest process, once that is known."""
        return self.done if self.attempts is None else self.attempts.outcome

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing for now: it waits for messages, with a process or without."""
        if self.attempts is None:
            return self.done is not None
        return self.charge is not None and self.charge.state in ("idle", "done")
