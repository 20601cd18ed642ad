"""A supervised agent process: its spec, state and outcome."""

import signal
from collections.abc import Callable
from typing import Literal, get_args

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.root_events import AgentChanged, AgentState
from coterie.agents.root_link.messages import ActivityChanged, AdmitCall, AgentMessage, RunFailed
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.runtime.spec import AgentSpec
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgent, RunningChild
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec

STDERR_LOG = "stderr.log"
"""In an agent's directory: what its process, and nothing else, had to say in the end."""

ProcessEnd = Literal["done", "failed", "killed"]
PROCESS_ENDS: tuple[str, ...] = get_args(ProcessEnd)


@attrs.frozen(kw_only=True)
class AgentOutcome:
    """What became of a process."""

    name: str
    incarnation: int
    end: ProcessEnd
    status: int
    """Its exit status, or the number of the signal that ended it, negative."""
    failure: RunFailed | None = None
    """What it said itself of why."""
    why: str = ""
    """What is known besides: that it had stalled, or who stopped it."""
    is_shared: bool = False
    """Whether the process was not its own."""

    @property
    def summary(self) -> str:
        """Why it ended, if not well, or not by itself."""
        return " ".join(filter(None, (self.why, self._cause)))

    @property
    def _cause(self) -> str:
        if self.end == "killed" and self.is_shared:
            return "Its task in the process of who started it was ended."
        if self.end == "killed":
            return f"Its process was ended by {signal.Signals(-self.status).name}."
        if self.failure is not None:
            return f"It could not do its work: {self.failure.reason}."
        return "" if self.end == "done" else f"Its process ended with status {self.status}; {STDERR_LOG} says more."


@attrs.define(eq=False)
class AgentProcess:
    """A process and the one who owns it."""

    order: SpawnSpec
    duty: AgentSpec
    emit: Callable[[Event], None]
    child: RunningChild | None = None
    state: AgentState | None = None
    connection: AgentConnection | None = None
    """Where it is served, once it is."""
    failure: RunFailed | None = None
    """Why it could not do its work, as it said itself."""
    message_count: int = 0
    """How many it has said."""
    has_asked: bool = False
    """Whether it has wanted to ask the model."""
    silence: float | None = None
    """Seconds in which nothing was heard of it, if that was too long."""
    is_dismissed: bool = False
    """Whether it was told to end what it is at."""
    stop_timeout: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled when its end is waited for no longer."""

    def set_state(self, state: AgentState, what: str = "") -> None:
        """Say that it is in another state now."""
        if self.state in PROCESS_ENDS or (self.state == "stopping" and state not in PROCESS_ENDS):
            return  # what it does in its last moments does not matter any more
        self.state = state
        duty, pid = self.duty, None if self.child is None else self.child.pid
        self.emit(
            AgentChanged(
                name=duty.name,
                incarnation=duty.incarnation,
                state=state,
                what=what,
                pid=pid,
                parent=duty.parent,
                report=duty.report if state in PROCESS_ENDS and duty.parent is not None else None,
            )
        )

    def spawned(self) -> Spawned:
        """What who asked for it gets to know."""
        return Spawned(name=self.duty.name, incarnation=self.duty.incarnation, report=self.duty.report)

    def outcome(self) -> AgentOutcome:
        """What became of it; it is reaped."""
        assert self.child is not None
        assert self.child.status is not None
        status = self.child.status
        # A teammate that only waited for messages has left nothing undone when its host ends, and lets it go.
        is_let_go = isinstance(self.child, InProcessAgent) and not self.child.is_lost and self.state == "idle"
        return AgentOutcome(
            name=self.duty.name,
            incarnation=self.duty.incarnation,
            end="done" if is_let_go else _end(status),
            status=status,
            failure=self.failure,
            why="" if self.silence is None else f"Nothing was heard of it for {self.silence:g} seconds.",
            is_shared=self.order.is_shared,
        )

    @property
    def has_crashed(self) -> bool:
        """Whether, now that it is reaped, nobody had wanted its end, and another start may go better."""
        outcome = self.outcome()
        is_meant = self.is_dismissed or (self.state == "stopping" and self.silence is None)
        return outcome.end != "done" and not is_meant and not (self.failure and self.failure.is_for_user)

    def report_stall(self, silence: float) -> None:
        """Say that nothing was heard of it for *silence* seconds, and let its owner stop it."""
        self.silence = silence
        self.set_state("stalled", f"nothing was heard of it for {silence:g} seconds")
        self.stop_timeout.cancel()

    def handle(self, word: AgentMessage) -> None:
        """Whatever the agent says; of itself, also more than once."""
        self.message_count += 1
        match word:
            case AdmitCall():
                self.has_asked = True
            case RunFailed():
                self.failure = word
            case ActivityChanged() if word.activity != self.state or word.what:
                self.set_state(word.activity, word.what)


def _end(status: int) -> ProcessEnd:
    if status < 0:
        return "killed"
    return "done" if status == 0 else "failed"
