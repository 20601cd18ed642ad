"""Run of an agent over its restarts, the restart policy, and the registry of all runs of a session."""

import contextlib
import signal
from collections.abc import Mapping

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted, Pivot
from coterie.agents.root_link.spawn_request import Spawner, SpawnRefused
from coterie.errors import AgentError
from coterie.mailbox.envelope import Envelope, MessageId, new_message_id
from coterie.orchestrator.supervisor.agent_process import PROCESS_ENDS, AgentOutcome, AgentProcess
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec
from coterie.session_directory import MAIN
from coterie.suggestions import did_you_mean


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How often one task may have its agent's process crash before it is given up."""

    limit: int = 2
    first_wait: float = 0.5
    """Seconds before the first new start; before each further one it is twice as long."""

    def wait_after(self, crashes: int) -> float | None:
        """Seconds to wait after so many crashes; None if there is no further start."""
        return None if crashes > self.limit else self.first_wait * 2 ** (crashes - 1)


NO_RESTARTS = RestartPolicy(limit=0)


@attrs.define(eq=False)
class RunAttempts:
    """The starts that one task takes. Whichever of them reports, the report has the same id."""

    order: SpawnSpec
    policy: RestartPolicy
    report: MessageId = attrs.field(init=False)
    process: AgentProcess | None = None
    """The latest start; None before the first."""
    outcome: AgentOutcome | None = None
    """What became of the latest that had a process."""
    crashes: int = 0
    _is_recorded: bool = False
    """Whether the task is in the transcript."""

    def __attrs_post_init__(self) -> None:
        self.report = self.order.report or new_message_id()

    @property
    def task(self) -> str:
        """What the next start is to be told: nothing, once the transcript has it."""
        return "" if self._is_recorded else self.order.task

    @property
    def is_done(self) -> bool:
        """Whether it has ended well."""
        return self.outcome is not None and self.outcome.end == "done"

    def begin(self, charge: AgentProcess) -> None:
        """Another start."""
        self.process = charge
        again = self.outcome and f"again, {self.crashes} of {self.policy.limit}: {self.outcome.summary}"
        charge.set_state("starting", again or "")

    def end(self, charge: AgentProcess) -> float | None:
        """The process of *charge* is reaped: seconds to wait before the next start, or None if this was the last."""
        self.outcome = charge.outcome()
        # Whatever is asked of the model was recorded before. Of one that died earlier nothing is known, and a task
        # that is told twice is better than none.
        self._is_recorded = self._is_recorded or charge.has_asked
        if not charge.has_crashed:
            return None
        self.crashes += 1
        wait = self.policy.wait_after(self.crashes)
        if wait is not None:
            charge.set_state(self.outcome.end, self.outcome.summary)
        elif self.crashes > 1:
            self._explain(f"It was started {self.crashes} times.")
        return wait

    def give_up(self, reason: str) -> None:
        """There will be no further start, because of *reason*."""
        self._explain(f"It could not be started again: {reason}.")

    def stop(self, by: str) -> None:
        """Somebody has stopped it, whatever it was at."""
        self._explain(f"{by[:1].upper()}{by[1:]} stopped it.")

    def _explain(self, why: str) -> None:
        if self.outcome is not None:
            self.outcome = attrs.evolve(self.outcome, why=f"{why} {self.outcome.why}".rstrip())


@attrs.define(eq=False)
class NotRunning(AgentError):
    """Nobody runs an agent of this name, so it cannot be stopped."""

    name: str
    at_work: tuple[str, ...]
    """Who could be."""

    def __str__(self) -> str:
        return f"{self.name!r} is not at work; {did_you_mean(self.name, self.at_work)}"


@attrs.define(eq=False)
class AgentRun:
    """An agent that is run, or that waits for a message to be run again."""

    order: SpawnSpec
    done: AgentOutcome | None = None
    """What became of it under an earlier root, if it is only kept for messages."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """All that is done for it; to cancel it is to stop the agent, and its subagents with it."""
    attempts: RunAttempts | None = None
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
    def shutdown_reason(self) -> str:
        """What it is told when it is asked to end."""
        return f"{self.stopped_by} stopped it" if self.stopped_by else "the session ends, or who started it has ended"

    @property
    def process(self) -> AgentProcess | None:
        """Its latest process; None before the first."""
        return None if self.attempts is None else self.attempts.process

    @property
    def outcome(self) -> AgentOutcome | None:
        """What became of its latest process, once that is known."""
        return self.done if self.attempts is None else self.attempts.outcome

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing for now: it waits for messages, with a process or without."""
        if self.attempts is None:
            return self.done is not None
        return self.process is not None and self.process.state in ("idle", "done")


@attrs.define(eq=False, kw_only=True)
class RunRegistry:
    """The agents of a session that somebody runs. Its methods are for tasks of the root, on its main thread."""

    runs: dict[str, AgentRun] = attrs.field(factory=dict, init=False)
    """Who is run, or is kept to be run again."""

    def find_run(self, name: str) -> AgentRun:
        """That of *name*. Raises `NotRunning`."""
        if name not in self.runs:
            raise NotRunning(name, tuple(self.runs))
        return self.runs[name]

    def descendants(self, name: str) -> list[str]:
        """Who is run, or kept, and was started by *name* or by one of those it started."""
        own = [child for child, tenure in self.runs.items() if tenure.order.parent == name]
        return own + [below for child in own for below in self.descendants(child)]

    def is_ready(self, name: str) -> bool:
        """Whether *name*, which is run, has a process that can be the parent of others."""
        charge = self.runs[name].process
        if charge is None or charge.child is None or charge.child.has_ended():
            return False
        return charge.state in ("running", "waiting", "idle", "plan_pending")

    def interrupt(self, name: str) -> None:
        """End the turn that *name* is at; nothing happens if it has no process."""
        tenure = self.runs.get(name)
        charge = None if tenure is None else tenure.process
        if charge is not None and charge.child is not None:
            charge.is_dismissed = True
            charge.child.send_signal(signal.SIGTERM)

    def move_to_background(self, name: str, why: str = "") -> None:
        """Let whoever waits for *name*, which it started, go on; the report will come as mail. Raises `NotRunning`.

        Nothing happens if nobody waits for it.
        """
        parent = self.runs.get(self.find_run(name).order.parent or "")
        charge = None if parent is None else parent.process
        if charge is not None and charge.connection is not None:
            with contextlib.suppress(ControlLost):  # it has ended, and waits for nobody
                charge.connection.send_release(name, why)

    def wake_lead(self, name: str) -> None:
        """Let the lead hear its mail, should it wait for *name*, or for whom *name* was started by."""
        while (tenure := self.runs.get(name)) is not None and tenure.order.parent is not None:
            if tenure.order.parent == MAIN:
                self.move_to_background(name, "a plan waits for your answer")
            name = tenure.order.parent

    async def stop(self, name: str, by: str = "the user") -> None:
        """Stop *name* and its subagents, as cancellation of `Supervisor.run_agent` does; no message takes it up again.

        Returns when none of them is left; its parent is told who stopped it. Raises `NotRunning`.
        """
        tenure = self.find_run(name)
        tenure.stop(by)
        await tenure.is_over.wait()

    def request_shutdown(self, request: Envelope) -> None:
        """Hand *request* to the one start of an agent that it is for. Raises `NotRunning` and `SpawnRefused`."""
        name, meant = request.recipient.name, request.recipient.incarnation
        charge = self.find_run(name).process
        if charge is None or charge.connection is None or charge.state in PROCESS_ENDS:
            raise SpawnRefused(f"{name} has no process that could end; a message would take it up again")
        if charge.duty.incarnation != meant:
            raise SpawnRefused(f"it was for start {meant} of {name}, and start {charge.duty.incarnation} is at work")
        try:
            charge.connection.deliver(request)
        except ControlLost as exc:
            raise SpawnRefused(f"{name} cannot be reached: {exc}") from exc


NO_PROCESS = "it has no process now; a message takes it up again"


async def compact_agent(
    tenures: Mapping[str, AgentRun], name: str, pivot: Pivot | None
) -> CompactionDone | NotCompacted:
    """Have the agent *name*, one of *tenures*, compact its conversation, and wait for that. Raises `NotRunning`."""
    if name not in tenures:
        raise NotRunning(name, tuple(tenures))
    charge = tenures[name].process
    desk = None if charge is None else charge.connection
    if desk is None:
        return NotCompacted(call=0, reason=NO_PROCESS)
    try:
        return await desk.compactor.compact(pivot)
    except ControlLost:
        return NotCompacted(call=0, reason=NO_PROCESS)
