"""Supervisor of a session: one task per agent starts it, restarts it after crashes and publishes its end."""

import contextlib
from collections.abc import Iterator

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.messages import ExpectReport
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, Incarnation
from coterie.agents.settings import AgentSettings
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_process import AgentProcess
from coterie.orchestrator.supervisor.agent_run import FINISH_TIMEOUT, AgentRun, AgentRuns, RestartPolicy
from coterie.orchestrator.supervisor.agent_status import AgentOutcome
from coterie.orchestrator.supervisor.child_agents import ChildAgents, StateChanges, choose_name
from coterie.orchestrator.supervisor.recovery import UnfinishedAgents
from coterie.orchestrator.supervisor.root_services import ProcessLimits, RootServices
from coterie.session_directory import MAIN

TaskStatus = trio.TaskStatus[Spawned]


@attrs.define(eq=False, kw_only=True)
class Supervisor:
    """Starts, restarts and stops the agents of one session. Call its methods from trio tasks of the root process."""

    services: RootServices
    runs: AgentRuns = attrs.field(factory=AgentRuns)
    """Runs of the session's agents that have not ended, by name."""
    limits: ProcessLimits = attrs.field(factory=ProcessLimits)
    restarts: RestartPolicy = attrs.field(factory=RestartPolicy)
    at_once: int = 20
    """Maximum number of agents that run at the same time."""
    is_killing: bool = attrs.field(default=False, init=False)
    """True if a stop kills agents immediately, without a shutdown request."""
    running: set[str] = attrs.field(factory=set, init=False)
    """Names of the agents that have a process or are starting one, but not of those that wait without a process."""
    unfinished: UnfinishedAgents = attrs.field(init=False)
    """Records of unfinished agents; if this root is killed, the next root resumes the agents from them."""
    _claimed: set[str] = attrs.field(factory=set, init=False)
    """Names that `claim` has reserved for agents that are being started."""
    _changes: StateChanges = attrs.field(factory=StateChanges, init=False)
    """Wakes waiting tasks when the state of any agent changes."""

    @unfinished.default
    def _default_unfinished(self) -> UnfinishedAgents:
        services = self.services
        return UnfinishedAgents(services.mail.session, services.approvals.records.key, services.emit)

    @classmethod
    def build(cls, services: RootServices, runs: AgentRuns, settings: AgentSettings, *, grace: float) -> "Supervisor":
        """Build a supervisor with the limits in *settings*; *grace* is the seconds that a process has to end."""
        return cls(
            services=services,
            runs=runs,
            limits=ProcessLimits(grace=grace, stall_after=settings.stall_after),
            restarts=RestartPolicy(limit=settings.starts - 1),
            at_once=settings.at_once,
        )

    @contextlib.contextmanager
    def claim(self, request: SpawnRequest) -> Iterator[str]:
        """Reserve a name for the requested agent until the block ends; the caller starts the agent in the block.

        Raises `SpawnRefused`, also if the maximum number of agents is running.
        """
        if len(self.running | self._claimed) >= self.at_once:
            raise SpawnRefused(f"No agent was started: {self.at_once} are running, the maximum. Wait until one ends.")
        taken = self._claimed | self.unfinished.names
        name = choose_name(request, self.services.mail.roster.members(), taken)
        self._claimed.add(name)
        try:
            yield name
        finally:
            self._claimed.remove(name)

    async def spawn_for(self, name: str, request: SpawnRequest) -> Spawned:
        """Start an agent as a child of agent *name*, for example for the user; *name* gets its report as mail.

        The new agent ends when *name* ends, like all its children. Raises `NotRunning` and `SpawnRefused`.
        """
        run = self.runs.find(name)
        if run.children is None or not run.is_ready:
            raise SpawnRefused(f"No agent was started: its parent {name} is starting or ending. Try again later.")
        if request.fork is not None:
            raise SpawnRefused(f"No agent was started: only {name} itself can fork its conversation. Use another type.")
        with run.spawning(self._changes.notify):
            spawned = await run.children.spawn(request)
            if not request.stays:
                run.notify(ExpectReport(report=spawned.report))
        return spawned

    async def stop(self, name: str, by: str = "the user") -> None:
        """Stop agent *name* and its children, and return when all have ended. Later messages do not start it again.

        The report to its parent states that *by* stopped it. Raises `NotRunning`.
        """
        await self.runs.find(name).stop(by)

    def kill_immediately(self) -> None:
        """Make each stop, including stops in progress, kill the agent immediately, without a shutdown request."""
        self.is_killing = True
        for run in self.runs.values():
            if run.process is not None:
                run.process.kill_if_stopping()

    @property
    def stop_time(self) -> float:
        """Seconds that the stops in progress may still take; 0 if no agent is being stopped."""
        return max((run.process.stop_time for run in self.runs.values() if run.process is not None), default=0.0)

    def interrupt(self, name: str) -> None:
        """Cancel the turn of agent *name* by SIGTERM; a process that then ends is not restarted. No-op without one."""
        run = self.runs.get(name)
        if run is not None and run.process is not None:
            run.process.interrupt()

    async def run_agent(self, run: AgentRun, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED) -> AgentOutcome:
        """Run one agent to its end, with restarts; *task_status* is started once its first process runs.

        After a crash the agent is restarted from its transcript, as `restarts` allows; children with a process of their
        own keep running. If `run.is_kept` is set, each message that arrives after the task is done starts the agent
        again. When this returns, all processes of the agent and its children are reaped, and its parent has received
        one report per task: from the agent, or from the root if the agent could not report.

        Cancellation sends a shutdown request, waits, sends SIGTERM, waits, and sends SIGKILL. Pass each *run* only
        once. Raises `StartFailed`, and `MailboxError` for an invalid name.
        """
        self.runs[run.name] = run
        try:
            with run.cancel_scope:
                await self._supervise(run, task_status)
        finally:
            with trio.move_on_after(FINISH_TIMEOUT, shield=True):
                if run.is_kept and run.is_done:
                    await self.services.status.set_state(run.name, "ended")
                if run.stopped_by is not None:
                    await self.unfinished.discard(run.name)
            del self.runs[run.name]
            run.ended.set()
        # Not reached if the whole session ends: its open approvals can be decided after a resume.
        if (outcome := run.outcome) is None:
            raise StartFailed(f"{run.stopped_by} stopped agent {run.name} before it was started; request it again")
        await self.services.approvals.close_for_agent(run.name, outcome.incarnation)
        return outcome

    async def _supervise(self, run: AgentRun, task_status: TaskStatus) -> None:
        if (outcome := run.outcome) is None:
            outcome = await self._run_until_done(run, task_status)
        else:
            task_status.started(Spawned(name=run.name, incarnation=outcome.incarnation, report=run.report))
        try:
            while run.is_kept and outcome.end == "done":
                async with self.services.mail.files.open_inbox(outcome.name, outcome.incarnation) as inbox:
                    while not inbox.take_nowait(1):  # not acknowledged, so that the agent receives it
                        await inbox.wait()
                outcome = await self._run_until_done(run, trio.TASK_STATUS_IGNORED)
        except (StartFailed, MailboxError) as exc:
            # Only an event: the parent already has the report, and the messages stay in the mailbox.
            reason = f"{run.name} could not be started again: {exc}"
            self.services.emit(LayerFailed(layer="supervisor", reason=reason))

    async def _run_until_done(self, run: AgentRun, task_status: TaskStatus) -> AgentOutcome:
        """Run one task of the agent: start it, restart it after crashes, and publish the outcome."""
        failure: StartFailed | MailboxError | None = None
        self.running.add(run.name)
        try:
            async with trio.open_nursery() as nursery:
                children = ChildAgents(
                    parent=run,
                    nursery=nursery,
                    services=self.services,
                    runs=self.runs,
                    unfinished=self.unfinished,
                    changes=self._changes,
                    claim=self.claim,
                    run_agent=self.run_agent,
                )
                run.begin_task(self.restarts, children)
                if run.recovery_record is not None:
                    await self.unfinished.begin(run.recovery_record)
                if run.team or self.unfinished.of(run.name):
                    nursery.start_soon(children.start_team)
                try:
                    await self._run_with_restarts(run, children, task_status)
                except (StartFailed, MailboxError) as exc:
                    failure = exc
                finally:
                    children.is_closed = True
                nursery.cancel_scope.cancel()
        finally:
            await run.finish_task(self.services, self.unfinished, keeps_worktree=self.is_killing)
            self.running.remove(run.name)
        if failure is not None:  # raised outside the nursery, so that it is not wrapped in a group
            raise failure
        assert run.outcome is not None
        return run.outcome

    async def _run_with_restarts(self, run: AgentRun, children: ChildAgents, task_status: TaskStatus) -> None:
        wait = await self._run_once(run, children, task_status)
        while wait is not None:
            await trio.sleep(wait)
            # A teammate in the process of its parent restarts with its parent, or ends with it.
            while run.is_in_process and not self.runs[run.spec.parent or MAIN].is_ready:
                await self._changes.next()
            try:
                wait = await self._run_once(run, children, trio.TASK_STATUS_IGNORED)
            except (StartFailed, MailboxError) as exc:
                run.explain(f"It could not be started again: {exc}.")
                return

    async def _run_once(self, run: AgentRun, children: ChildAgents, task_status: TaskStatus) -> float | None:
        """Run one process of the agent until it is reaped. Return the seconds before a restart; None for no restart."""
        services, parent = self.services, run.spec.parent
        await run.open_workspace(services.mail.session)
        member = await services.mail.roster.join(run.name, run.member_origin)
        process = AgentProcess(
            spec=self._incarnation_spec(run, member.incarnation, children),
            services=services,
            limits=self.limits,
            spawner=children,
            emit=self._emit_change,
            shutdown_reason=lambda: run.shutdown_reason,
            has_busy_children=children.has_busy,
            is_killed_immediately=lambda: self.is_killing,
            is_in_process=run.is_in_process,
        )
        run.begin_process(process)
        wait: float | None = None
        try:
            async with services.gateway.open_client(
                run.name, incarnation=member.incarnation, parent=parent, subtree=run.budget
            ) as client:
                host = self.runs.get(parent or "")
                await process.run(client, None if host is None else host.process, task_status)
        finally:
            if process.child is not None:
                wait = run.end_process(process)
        return wait

    def _emit_change(self, event: Event) -> None:
        self.services.emit(event)
        self._changes.notify()

    def _incarnation_spec(self, run: AgentRun, number: int, children: ChildAgents) -> AgentSpec:
        """Return the start parameters for start *number* of *run*, with the current state of children and approvals."""
        services, name, plan = self.services, run.name, run.spec.plan
        return attrs.evolve(
            run.spec,
            task=run.task,
            report=run.report,
            plan=None if plan is None else plan.resolve(is_lead=name == MAIN),
            workspace=run.workspace,
            services=services.of_agents,
            incarnation=Incarnation(
                number=number,
                is_resumed=run.is_resumed,
                is_plan_approved=services.approvals.is_approved(name),
                running_children=children.expected_reports(),
                has_teammate=children.has_teammate(),
                trusted_digests=tuple(services.mail.files.trusted.get(name, ())),
            ),
        )
