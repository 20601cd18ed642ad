"""One process of an agent, as the root sees it: start, connection, detection of a stall, stop, and outcome."""

import contextlib
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import AgentChanged, AgentState
from coterie.agents.root_link.channel import MessageChannel, open_channel
from coterie.agents.root_link.messages import (
    ActivityChanged,
    AdmitCall,
    AgentFrame,
    AgentMessage,
    RunFailed,
    agent_decoder,
)
from coterie.agents.root_link.spawn_request import Spawned, Spawner
from coterie.agents.runtime.agent_spec import AGENT_ENTRY, AgentSpec
from coterie.errors import first_exception
from coterie.mailbox.envelope import Envelope, Recipient
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.gateway.admission import GatewayClient
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, StartFailed
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.agent_status import PROCESS_ENDS, STDERR_LOG, AgentOutcome, ProcessEnd
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgent, RunningChild
from coterie.orchestrator.supervisor.root_services import ProcessLimits, RootServices
from coterie.orchestrator.supervisor.stall_watch import Activity, wait_for_stall, wakeup_count, written_bytes
from coterie.orchestrator.supervisor.termination import (
    kill_child,
    kill_orphans,
    remove_drafts_sync,
    terminate,
)
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, agent_tag
from coterie.session_directory import SessionDirectory

OpenChannel = AbstractAsyncContextManager[MessageChannel[AgentFrame]]
FINAL_MESSAGES_TIMEOUT = 1.0
"""Maximum seconds to receive the messages that an agent sent before it ended."""
ORPHANS_TIMEOUT = 5.0
"""Maximum seconds to kill the remaining commands of an ended agent and wait for their end."""


@attrs.define(eq=False, kw_only=True)
class AgentProcess:
    """One process of an agent, or an agent's task in the process of its parent. The task that calls `run` owns it."""

    spec: AgentSpec
    services: RootServices
    limits: ProcessLimits
    spawner: Spawner
    """Starts and stops subagents for this agent."""
    emit: Callable[[Event], None]
    """Called with an event at each change of the agent's state."""
    shutdown_reason: Callable[[], str]
    """Returns the reason to send to the agent in a shutdown request."""
    has_busy_children: Callable[[], bool]
    """Returns True while a direct child of this agent is working."""
    is_killed_immediately: Callable[[], bool]
    """Returns True if a stop must kill the process immediately instead of sending a shutdown request first."""
    is_in_process: bool = False
    """True if the agent is a task in the process of its parent, without a process of its own."""
    child: RunningChild | None = attrs.field(default=None, init=False)
    """Handle of the agent's process or task; None before it is started."""
    state: AgentState | None = attrs.field(default=None, init=False)
    connection: AgentConnection | None = attrs.field(default=None, init=False)
    """The root's side of the connection to the agent; None before the process is started."""
    message_count: int = attrs.field(default=0, init=False)
    """Number of messages and requests received from the agent so far."""
    has_called_model: bool = attrs.field(default=False, init=False)
    """True once the agent has requested a model call."""
    _failure: RunFailed | None = attrs.field(default=None, init=False)
    """Failure that the agent has reported for its task; None if it has reported none."""
    _silence: float | None = attrs.field(default=None, init=False)
    """Seconds without progress after which the process was stopped as stalled; None if it has not stalled."""
    _is_interrupted: bool = attrs.field(default=False, init=False)
    """True if the user has cancelled the agent's turn."""
    _stalled: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Scope of the wait for the end of the process. A stall cancels it, so that the process is stopped."""
    _stop_deadline: float | None = attrs.field(default=None, init=False)
    """Time of trio's clock at which the stop in progress must be over; None if the process is not being stopped."""

    async def run(
        self, client: GatewayClient, host: "AgentProcess | None", task_status: trio.TaskStatus[Spawned]
    ) -> None:
        """Start the process and serve its connection until it is reaped. *client* admits its model calls.

        An in-process agent is started in *host*, the process of its parent. *task_status* is started once the agent
        process runs. Cancellation sends a shutdown request, waits, sends SIGTERM, waits, and kills what remains. Raises
        `StartFailed`.
        """
        if self.is_in_process:
            if host is None or host.connection is None or host.child is None:
                raise StartFailed("the agent runs in the process of its parent, which has ended; start the parent")
            self.child = task = host.connection.in_process.run(self.spec, host.child)
            await self._serve_until_exit(task, client, nullcontext(task.channel), task_status)
            return
        own_end, agent_end = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(own_end)) as stream:
            with agent_end:
                self.child = child = await self._start(agent_end)
            opening = open_channel(stream, agent_decoder)
            await self._serve_until_exit(child, client, opening, task_status)

    async def _start(self, control: socket.socket) -> ChildProcess:
        spec, session = self.spec, self._session
        start = ProcessStart(
            title=f"coterie {spec.name}",
            entry=AGENT_ENTRY,
            payload=spec.to_bytes(),
            directory=session.project,
            environment={
                **self.services.environment,
                SESSION_VARIABLE: spec.services.session_id,
                AGENT_VARIABLE: self._tag,
            },
        )
        with (session.agent_directory(spec.name) / STDERR_LOG).open("ab", buffering=0) as errors:
            return await self.services.starter.start(start, [control.fileno()], stderr=errors.fileno())

    async def _serve_until_exit(
        self, child: RunningChild, client: GatewayClient, opening: OpenChannel, task_status: trio.TaskStatus[Spawned]
    ) -> None:
        spec, services = self.spec, self.services
        async with trio.open_nursery() as nursery:
            approvals = AgentApprovals(
                approvals=services.approvals,
                agent=spec.name,
                incarnation=spec.incarnation.number,
                policy=spec.plan,
                directory=spec.workspace.directory or self._session.project,
            )
            prompter = approvals if services.user is None and services.asks_later else services.user
            connection = AgentConnection(client, self.handle, self.spawner, prompter, spec.name, approvals)
            self.connection = connection
            # Shielded, because the shutdown request needs this connection.
            serving = trio.CancelScope(shield=True)
            is_served = trio.Event()
            nursery.start_soon(self._serve, child, connection, opening, serving, is_served)
            nursery.start_soon(self._watch, child, connection)
            task_status.started(self.spawned())
            try:
                with self._stalled:
                    await child.wait_ended()
            finally:
                await self._stop(child, connection)
                with trio.move_on_after(FINAL_MESSAGES_TIMEOUT, shield=True):
                    await is_served.wait()
                serving.cancel()
                nursery.cancel_scope.cancel()

    async def _serve(
        self,
        child: RunningChild,
        connection: AgentConnection,
        opening: OpenChannel,
        serving: trio.CancelScope,
        is_served: trio.Event,
    ) -> None:
        with serving:
            try:
                async with opening as channel:
                    await connection.run(channel)
            except* ControlLost as group:
                # Without a channel the agent cannot be asked to end.
                self.services.emit(LayerFailed(layer="control", reason=str(first_exception(group))))
                child.send_signal(signal.SIGKILL)
        is_served.set()

    async def _watch(self, child: RunningChild, connection: AgentConnection) -> None:
        """Stop the agent as stalled if it makes no progress for `stall_after` seconds."""
        seconds = self.limits.stall_after
        await wait_for_stall(lambda: self._activity(child, connection), seconds)
        self.report_stall(seconds)

    def _activity(self, child: RunningChild, connection: AgentConnection) -> Activity | None:
        """Return counters of the agent's progress; None if it has reason to wait, e.g. for subagents or the user."""
        name = self.spec.name
        running_calls, waiting_calls = self.services.gateway.activity(name)
        is_busy = self.state in ("starting", "running") and not connection.open_prompts and not waiting_calls
        if not is_busy or self.has_busy_children():
            return None
        wakeups = wakeup_count(child.pid) if running_calls else None
        return self.state, self.message_count, wakeups, *written_bytes(self._session.agent_directory(name))

    async def _stop(self, child: RunningChild, connection: AgentConnection) -> None:
        """End the process, its group and its orphans, and return once it is reaped. Shielded from cancellation."""
        is_killed, grace = self.is_killed_immediately(), self.limits.grace
        self._stop_deadline = trio.current_time() + (0.0 if is_killed else 2 * grace) + ORPHANS_TIMEOUT
        with trio.CancelScope(shield=True):
            if not child.has_ended():
                self.set_state("stopping")
                if not is_killed:
                    self._request_shutdown(child, connection, grace)
            if is_killed:
                await kill_child(child)
            else:
                await terminate(child, grace)
            with trio.move_on_after(ORPHANS_TIMEOUT):
                await kill_orphans(self.spec.services.session_id, self._tag)
            if isinstance(child, ChildProcess) and child.status != 0:
                # Remove the drafts of a killed process; the doctor removes what cannot be removed here.
                with contextlib.suppress(OSError):
                    agent = self._session.agent_directory(self.spec.name)
                    await trio.to_thread.run_sync(remove_drafts_sync, self._session.directory, agent, child.pid)
        self._stop_deadline = None

    def _request_shutdown(self, child: RunningChild, connection: AgentConnection, grace: float) -> None:
        if self._silence is not None:
            # A stalled agent does not read its mail either.
            child.send_signal(signal.SIGTERM)
            return
        request = ShutdownRequest(reason=self.shutdown_reason(), deadline=grace)
        envelope = Envelope(
            sender=self.services.status.sender,
            # Other incarnations ignore it.
            recipient=Recipient(name=self.spec.name, incarnation=self.spec.incarnation.number),
            sequence=1,
            kind=request.kind,
            body=request.to_body(),
            created=self.services.clock.now(),
        )
        with contextlib.suppress(ControlLost):  # SIGTERM follows
            connection.deliver(envelope)

    def handle(self, message: AgentMessage) -> None:
        """Process a message of the agent: count it, and record a change of state, a failure or a model call."""
        self.message_count += 1
        match message:
            case AdmitCall():
                self.has_called_model = True
            case RunFailed():
                self._failure = message
            case ActivityChanged() if message.activity != self.state or message.what:
                self.set_state(message.activity, message.what)

    def set_state(self, state: AgentState, what: str = "") -> None:
        """Change the state and emit an event. Ignored after the end; while stopping, only an end is accepted."""
        if self.state in PROCESS_ENDS or (self.state == "stopping" and state not in PROCESS_ENDS):
            return
        self.state = state
        spec = self.spec
        self.emit(
            AgentChanged(
                name=spec.name,
                incarnation=spec.incarnation.number,
                state=state,
                what=what,
                pid=None if self.child is None else self.child.pid,
                parent=spec.parent,
                report=spec.report if state in PROCESS_ENDS and spec.parent is not None else None,
            )
        )

    def report_stall(self, silence: float) -> None:
        """Set the state to "stalled" because of *silence* seconds without progress, and make `run` stop the process."""
        self._silence = silence
        self.set_state("stalled", f"no sign of life for {silence:g} seconds")
        self._stalled.cancel()

    def interrupt(self) -> None:
        """Cancel the agent's turn by SIGTERM; if the process then ends, it is not restarted. No-op before its start."""
        if self.child is not None:
            self._is_interrupted = True
            self.child.send_signal(signal.SIGTERM)

    def kill_if_stopping(self) -> None:
        """Kill the process without a further grace period if it is already being stopped."""
        if self._stop_deadline is None or self.child is None or self.child.has_ended():
            return
        self._stop_deadline = trio.current_time() + ORPHANS_TIMEOUT
        self.child.send_signal_to_group(signal.SIGKILL)

    def spawned(self) -> Spawned:
        """Return the result of the spawn request that started this agent, for its parent."""
        return Spawned(name=self.spec.name, incarnation=self.spec.incarnation.number, report=self.spec.report)

    @property
    def is_ready(self) -> bool:
        """True if the agent has started and is not stalled, stopping or ended; then subagents can be started for it."""
        if self.child is None or self.child.has_ended():
            return False
        return self.state in ("running", "waiting", "idle", "plan_pending")

    @property
    def stop_time(self) -> float:
        """Seconds that the stop in progress may still take; 0 if there is none or if it is late."""
        return 0.0 if self._stop_deadline is None else max(0.0, self._stop_deadline - trio.current_time())

    def outcome(self) -> AgentOutcome:
        """Return how the process ended. Call it only once the process is reaped."""
        assert self.child is not None
        assert self.child.status is not None
        status = self.child.status
        # An idle teammate has no unfinished work when the process of its parent ends.
        is_idle_end = isinstance(self.child, InProcessAgent) and not self.child.is_lost and self.state == "idle"
        end: ProcessEnd = "done" if is_idle_end or status == 0 else "killed" if status < 0 else "failed"
        return AgentOutcome(
            name=self.spec.name,
            incarnation=self.spec.incarnation.number,
            end=end,
            status=status,
            failure=self._failure,
            why="" if self._silence is None else f"It showed no sign of life for {self._silence:g} seconds.",
            is_shared=self.is_in_process,
        )

    @property
    def is_end_final(self) -> bool:
        """True if the agent must not be restarted: it was stopped, lost its parent, or needs a correction by a user."""
        is_stopped = self._is_interrupted or (self.state == "stopping" and self._silence is None)
        # A subagent ends with the process of its parent, because the parent's tool call has ended too.
        is_lost = isinstance(self.child, InProcessAgent) and self.child.is_lost and not self.spec.is_teammate
        return is_stopped or is_lost or (self._failure is not None and self._failure.is_for_user)

    @property
    def _session(self) -> SessionDirectory:
        return self.services.mail.session

    @property
    def _tag(self) -> str:
        return agent_tag(self.spec.name, self.spec.incarnation.number)
