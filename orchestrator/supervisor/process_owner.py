"""Owner of one agent process: workspace, start, service, watch, stop and the end of its run."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.root_link.channel import MessageChannel, open_channel
from coterie.agents.root_link.messages import AgentMessage, agent_decoder
from coterie.agents.root_link.spawn_request import Spawned, Spawner
from coterie.agents.runtime.spec import AGENT_ENTRY, AgentSpec
from coterie.agents.runtime.task_release import release_tasks
from coterie.agents.worktrees.worktree import WorktreeFailed
from coterie.agents.worktrees.worktree_lifecycle import WORK_NOT_CHECKED, describe_work, open_worktree, release_worktree
from coterie.clock import Clock
from coterie.errors import first_exception
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.session_mail import SessionMail
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.approvals.service import ApprovalService
from coterie.orchestrator.gateway.admission import GatewayClient, ModelGateway
from coterie.orchestrator.mcp.host_supervisor import McpHostSupervisor
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, ProcessStarter, StartFailed
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.agent_process import STDERR_LOG, AgentProcess
from coterie.orchestrator.supervisor.agent_run import AgentRun, RunAttempts, RunRegistry
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.idle import STALL_SECONDS, Activity, wait_for_stall, wakeup_count, written_bytes
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgent
from coterie.orchestrator.supervisor.recovery import UnfinishedAgents
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec
from coterie.orchestrator.supervisor.termination import kill_orphans, remove_drafts_sync, shutdown_envelope, terminate
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE, agent_tag
from coterie.session_directory import TASKS, SessionDirectory

OpenChannel = AbstractAsyncContextManager[MessageChannel[AgentMessage]]
FINAL_MESSAGES_TIMEOUT = 1.0
"""Seconds in which what an agent said before it ended is heard."""


@attrs.define(eq=False, kw_only=True)
class ProcessOwner(RunRegistry):
    """What the processes of those at work need. Its methods are for tasks of the root, on its main thread."""

    mail: SessionMail
    starter: ProcessStarter
    gateway: ModelGateway
    emit: Callable[[Event], None]
    clock: Clock
    approvals: ApprovalService
    server: str | None = None
    """The URL of the embedded server, where that plays the model."""
    grace: float = 5.0
    """Seconds for each step of stopping: asked, told by SIGTERM, killed."""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    mcp: McpHostSupervisor | None = None
    """Who holds the MCP servers; None where there are none."""
    user: UserPrompter | None = None
    """Who is asked for permissions; None refuses."""
    asks_later: bool = False
    """Whether questions that nobody is there for wait until the user answers from a shell."""
    stall_after: float = STALL_SECONDS
    """Seconds without a sign of life after which an agent at work is stopped, as if it had crashed."""

    @property
    def status(self) -> StatusPublisher:
        """Says what becomes of agents."""
        return StatusPublisher(self.mail, self.emit)

    async def run_process(
        self,
        charge: AgentProcess,
        tenure: AgentRun,
        asker: GatewayClient,
        spawner: Spawner,
        task_status: trio.TaskStatus[Spawned],
    ) -> None:
        """Start the process of *charge* and serve it until it is reaped; *spawner* starts its subagents.

        One that shares its parent's process is a task there, and is served as well. Cancelled, it asks the agent to
        end, waits, terminates it, waits, and kills what is left. Raises `StartFailed`.
        """
        if charge.order.is_shared:
            charge.child = guest = self._start_in_parent(charge)
            await self._serve_until_exit(charge, tenure, asker, spawner, nullcontext(guest.channel), task_status)
            return
        near, far = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(near)) as stream:
            with far:
                charge.child = await self._start(charge.duty, far)
            opening = open_channel(stream, agent_decoder)
            await self._serve_until_exit(charge, tenure, asker, spawner, opening, task_status)

    async def _serve_until_exit(
        self,
        charge: AgentProcess,
        tenure: AgentRun,
        asker: GatewayClient,
        spawner: Spawner,
        opening: OpenChannel,
        task_status: trio.TaskStatus[Spawned],
    ) -> None:
        async with trio.open_nursery() as nursery:
            mine = self._approvals_of(charge)
            user = mine if self.user is None and self.asks_later else self.user
            desk = charge.connection = AgentConnection(asker, charge.handle, spawner, user, charge.order.name, mine)
            # Served to its end, also when this is cancelled: it is asked to end over the same socket.
            serving = trio.CancelScope(shield=True)
            is_served = trio.Event()
            child = charge.child
            assert child is not None
            nursery.start_soon(self._serve, charge, opening, serving, is_served)
            nursery.start_soon(self._watch, charge, desk)
            task_status.started(charge.spawned())
            try:
                with charge.stop_timeout:
                    await child.wait_ended()
            finally:
                await self._stop(charge, desk, tenure.shutdown_reason)
                with trio.move_on_after(FINAL_MESSAGES_TIMEOUT, shield=True):
                    await is_served.wait()
                serving.cancel()
                nursery.cancel_scope.cancel()

    def _approvals_of(self, charge: AgentProcess) -> AgentApprovals:
        duty = charge.duty
        return AgentApprovals(
            approvals=self.approvals,
            agent=duty.name,
            incarnation=duty.incarnation,
            policy=duty.plan,
            directory=self.mail.session.project if duty.directory is None else Path(duty.directory),
        )

    def _start_in_parent(self, charge: AgentProcess) -> InProcessAgent:
        parent = self.runs.get(charge.order.parent or "")
        host = None if parent is None else parent.process
        if host is None or host.connection is None or host.child is None:
            raise StartFailed("who started it has no process that it could share")
        return host.connection.in_process.run(charge.duty, host.child)

    async def _start(self, duty: AgentSpec, control: socket.socket) -> ChildProcess:
        directory = self.mail.session.agent_directory(duty.name)
        start = ProcessStart(
            title=f"coterie {duty.name}",
            entry=AGENT_ENTRY,
            payload=duty.to_bytes(),
            directory=self.mail.session.project,
            environment={
                **self.environment,
                SESSION_VARIABLE: duty.session,
                AGENT_VARIABLE: agent_tag(duty.name, duty.incarnation),
            },
        )
        with (directory / STDERR_LOG).open("ab", buffering=0) as errors:
            return await self.starter.start(start, [control.fileno()], stderr=errors.fileno())

    async def _serve(
        self, charge: AgentProcess, opening: OpenChannel, serving: trio.CancelScope, is_served: trio.Event
    ) -> None:
        assert charge.connection is not None
        assert charge.child is not None
        with serving:
            try:
                async with opening as line:
                    await charge.connection.run(line)
            except* ControlLost as group:
                # It cannot be talked to, so it cannot be asked either.
                self.emit(LayerFailed(layer="control", reason=str(first_exception(group))))
                charge.child.send_signal(signal.SIGKILL)
        is_served.set()

    async def _watch(self, charge: AgentProcess, desk: AgentConnection) -> None:
        """Have an agent stopped of which nothing is heard."""
        await wait_for_stall(lambda: self._activity(charge, desk), self.stall_after)
        charge.report_stall(self.stall_after)

    def _activity(self, charge: AgentProcess, desk: AgentConnection) -> Activity | None:
        """What an agent at work has come to; None for one that waits, for others or for its turn at the gate."""
        name, child = charge.duty.name, charge.child
        helpers = (tenure for tenure in self.runs.values() if tenure.order.parent == name)
        at_gate = next(agent for agent in self.gateway.stats().agents if agent.name == name)
        is_at_work = charge.state in ("starting", "running") and not desk.is_awaiting_answer and not at_gate.waiting
        if child is None or not is_at_work or not all(helper.is_idle for helper in helpers):
            return None
        awake = wakeup_count(child.pid) if at_gate.running_calls else None
        return charge.state, charge.message_count, awake, *written_bytes(self.mail.session.agent_directory(name))

    async def _stop(self, charge: AgentProcess, desk: AgentConnection, reason: str) -> None:
        """End the process, whatever it takes, and all that it left; returns when it is reaped."""
        assert charge.child is not None
        duty, child = charge.duty, charge.child
        with trio.CancelScope(shield=True):
            if not child.has_ended():
                charge.set_state("stopping")
                self._request_shutdown(charge, desk, reason)
            await terminate(child, self.grace)
            with trio.move_on_after(self.grace):
                await kill_orphans(duty.session, agent_tag(duty.name, duty.incarnation))
            if isinstance(child, ChildProcess) and child.status != 0:
                await self._clean_up(duty, child.pid)

    async def _clean_up(self, duty: AgentSpec, pid: int) -> None:
        """Remove what a process that was killed had begun to write. What cannot be removed is the doctor's to find."""
        session = self.mail.session
        with contextlib.suppress(OSError):
            agent = session.agent_directory(duty.name)
            await trio.to_thread.run_sync(remove_drafts_sync, session.directory, agent, pid)

    def _request_shutdown(self, charge: AgentProcess, desk: AgentConnection, reason: str) -> None:
        assert charge.child is not None
        if charge.silence is not None:
            # Whoever does not get on does not read its mail either.
            charge.child.send_signal(signal.SIGTERM)
            return
        request = ShutdownRequest(reason=reason, deadline=self.grace)
        with contextlib.suppress(ControlLost):  # then it is told by a signal
            desk.deliver(shutdown_envelope(charge.duty, request, self.status.sender, self.clock.now()))


async def prepare_workspace(order: SpawnSpec, session: SessionDirectory) -> SpawnSpec:
    """*order* with the place that it asks for; as it is where that is its parent's. Raises `StartFailed`.

    An agent that is started again has the worktree it had, or a new one if that was removed.
    """
    if order.isolation is None:
        return order
    if order.worktree is not None:
        origin = order.worktree.origin
    else:
        origin = session.project if order.directory is None else Path(order.directory)
    try:
        worktree = await open_worktree(session, order.name, origin)
    except WorktreeFailed as exc:
        raise StartFailed(str(exc)) from exc
    return attrs.evolve(order, worktree=worktree, directory=str(worktree.directory))


async def release_workspace(order: SpawnSpec, grace: float) -> str:
    """Remove the worktree of an agent that has ended, unless there is work in it; what became of it, in a sentence.

    Empty if it had none. Shielded, for *grace* seconds: what cannot be done by then is the doctor's to do.
    """
    left = "" if order.worktree is None else describe_work(order.worktree, WORK_NOT_CHECKED)
    if order.worktree is not None:
        with trio.move_on_after(grace, shield=True):
            try:
                left = await release_worktree(order.worktree)
            except OSError as exc:
                left = describe_work(order.worktree, f"it could not be removed, {exc}")
    return left


FINISH_TIMEOUT = 5.0
"""Seconds that it may take to say what became of an agent."""


async def finish_run(
    tenure: AgentRun, attempts: RunAttempts, owner: ProcessOwner, open_orders: UnfinishedAgents
) -> None:
    """Say what became of the task that *attempts* were made at, to the parent too, if the agent could not.

    Also when it is cancelled: each step is shielded, and has its deadline.
    """
    if tenure.stopped_by is not None:
        attempts.stop(tenure.stopped_by)
    is_kept = tenure.order.is_kept and attempts.is_done and tenure.stopped_by is None
    if attempts.process is not None:
        await _report_end(attempts.process, attempts, owner, is_kept=is_kept)
    with trio.move_on_after(FINISH_TIMEOUT, shield=True):
        # Last: what is open when the root is killed is done again, and what was reported counts once.
        await open_orders.end(attempts.order, attempts.report, is_kept=is_kept)


async def _report_end(charge: AgentProcess, attempts: RunAttempts, owner: ProcessOwner, *, is_kept: bool) -> None:
    left = await release_workspace(charge.order, owner.grace)
    with trio.move_on_after(FINISH_TIMEOUT, shield=True):
        if attempts.outcome is not None and not attempts.is_done:
            await owner.status.report(charge.duty, attempts.outcome, left)
            await _release_tasks(charge.duty, owner)
        # Before it is told, so that whoever hears of it can write to one that is kept.
        await owner.status.set_state(charge.duty.name, "idle" if is_kept else "ended")
    if attempts.outcome is None:
        charge.set_state("failed", "It could not be started.")
    else:
        charge.set_state(attempts.outcome.end, attempts.outcome.summary)


async def _release_tasks(duty: AgentSpec, owner: ProcessOwner) -> None:
    """Give back what one that was killed could not."""
    directory = owner.mail.session.directory / TASKS
    if directory.exists():
        holder = TaskOwner(name=duty.name, incarnation=duty.incarnation)
        await release_tasks(TaskList(directory, owner.clock), holder, owner.emit)
