"""Supervisor of a session: runs each agent in one task, from its first start to its end, with restarts."""

import contextlib
from collections import Counter
from collections.abc import Iterator

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.agents.runtime.spec import AgentSpec
from coterie.agents.settings import AgentSettings
from coterie.mailbox.contract import Member
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_process import AgentOutcome, AgentProcess
from coterie.orchestrator.supervisor.agent_run import AgentRun, RestartPolicy, RunAttempts, RunRegistry
from coterie.orchestrator.supervisor.child_agents import ChildAgents
from coterie.orchestrator.supervisor.idle import StateChanges
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgent
from coterie.orchestrator.supervisor.process_owner import FINISH_TIMEOUT, ProcessOwner, finish_run, prepare_workspace
from coterie.orchestrator.supervisor.recovery import UnfinishedAgents
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec, choose_name, read_only_spec
from coterie.session_directory import MAIN


def incarnation_spec(
    order: SpawnSpec, member: Member, report: MessageId, owner: ProcessOwner, open_orders: UnfinishedAgents
) -> AgentSpec:
    """What the start of *order* is told that is *member* on the roster, and whose *report* is expected.

    True for the moment at which it is made: who works for it, and whether its plan was approved, can change at once.
    """
    office = owner.mail
    return AgentSpec(
        session=office.session.id,
        name=order.name,
        incarnation=member.incarnation,
        parent=order.parent,
        report=report,
        task=order.task,
        model=order.model,
        settings=order.settings,
        definition=order.definition,
        server=owner.server,
        is_bare=order.is_bare,
        fork=order.fork,
        stays=order.stays,
        directory=order.directory,
        worktree=order.worktree,
        can_ask=owner.user is not None or owner.asks_later,
        above=order.above,
        keys=None if office.keys is None else office.keys.to_hex(),
        believed=tuple(office.files.trusted.get(order.name, ())),
        chore=order.chore,
        plan=None if order.plan is None else order.plan.resolve(is_lead=order.name == MAIN),
        is_approved=owner.approvals.is_approved(order.name),
        memory=order.memory,
        at_work=_running_children(order.name, owner, open_orders),
        has_teammate=_has_teammate(order.name, owner, open_orders),
        is_taken_up=order.is_taken_up,
        mcp=None if owner.mcp is None else owner.mcp.access,
    )


def _running_children(name: str, agents: RunRegistry, open_orders: UnfinishedAgents) -> tuple[Spawned, ...]:
    """Whose reports *name* has to expect, because it had started them before it crashed."""
    children = (tenure for tenure in agents.runs.values() if tenure.order.parent == name and not tenure.is_idle)
    charges = (tenure.process for tenure in children if not tenure.order.stays)
    to_come = (each for each in open_orders.of(name) if not each.is_done and not each.request.stays)
    return (
        *(charge.spawned() for charge in charges if charge is not None),
        *(Spawned(name=each.name, incarnation=0, report=each.report) for each in to_come),
    )


def _has_teammate(name: str, agents: RunRegistry, open_orders: UnfinishedAgents) -> bool:
    """Whether somebody stays whom *name* had started before it crashed."""
    is_kept = any(tenure.order.parent == name and tenure.order.stays for tenure in agents.runs.values())
    return is_kept or any(each.request.stays for each in open_orders.of(name))


TaskStatus = trio.TaskStatus[Spawned]


@attrs.define(eq=False, kw_only=True)
class Supervisor(ProcessOwner):
    """Runs the agents of one session. Its methods are for tasks of the root, on its main thread."""

    restarts: RestartPolicy = attrs.field(factory=RestartPolicy)
    at_once: int = 20
    """Agents that may be at work at the same time."""
    running: set[str] = attrs.field(factory=set, init=False)
    """Who has a process, or is getting one."""
    _claimed: set[str] = attrs.field(factory=set, init=False)
    """Names of those who are about to be put on the roster."""
    _spawning_for: Counter[str] = attrs.field(factory=Counter, init=False)
    """For whom others are about to be started, without having asked: a lead for its team, or for the user."""
    changes: StateChanges = attrs.field(factory=StateChanges, init=False)
    """Of what any of them does."""
    unfinished: UnfinishedAgents = attrs.field(init=False)
    """Whom the next root would run on, if this one were killed."""

    def __attrs_post_init__(self) -> None:
        self.unfinished = UnfinishedAgents(self.mail.session, self.approvals.records.key, self.emit)

    def apply_settings(self, settings: AgentSettings) -> None:
        """Hold to what the user has set."""
        self.at_once = settings.at_once
        self.restarts = RestartPolicy(limit=settings.starts - 1)
        self.stall_after = settings.stall_after

    @contextlib.contextmanager
    def claim(self, request: SpawnRequest) -> Iterator[str]:
        """A name that is nobody else's until the block ends, and by then on the roster. Raises `SpawnRefused`."""
        if len(self.running | self._claimed) >= self.at_once:
            raise SpawnRefused(f"{self.at_once} agents are at work, and there may be no more; wait for one to end.")
        taken = self._claimed | self.unfinished.names
        name = choose_name(request, self.mail.roster.members(), taken)
        self._claimed.add(name)
        try:
            yield name
        finally:
            self._claimed.remove(name)

    @contextlib.contextmanager
    def spawning_for(self, name: str) -> Iterator[None]:
        """Within the block others are about to be started for *name*: it does not find all of its own at rest."""
        self._spawning_for[name] += 1
        try:
            yield
        finally:
            self._spawning_for[name] -= 1
            self.changes.notify()

    async def spawn_for(self, name: str, request: SpawnRequest) -> Spawned:
        """Start an agent for *name* as if that had asked for it; it hears the report as mail, and waits for it.

        Like all that *name* has started, it ends with it. Raises `NotRunning` and `SpawnRefused`.
        """
        tenure = self.find_run(name)
        spawner = tenure.spawner
        if spawner is None or not self.is_ready(name):
            raise SpawnRefused(f"{name} is starting or ending: nobody can be started for it now.")
        if request.fork is not None:
            raise SpawnRefused(f"Only {name} itself can say where a fork of it begins.")
        with self.spawning_for(name):
            spawned = await spawner.spawn(request)
            charge = tenure.process
            if charge is not None and charge.connection is not None and not request.stays:
                with contextlib.suppress(ControlLost):  # its next start expects it, if there is one
                    charge.connection.send_spawned(spawned)
        return spawned

    def with_inherited_limits(self, order: SpawnSpec) -> SpawnSpec:
        """*order* as far as who has it may pass on now: one that must plan starts others that may only read.

        So does one whose plan a rule has approved, since the rule has seen nothing of what they would change.
        """
        plan = order.plan
        is_free = plan is None or (plan.by != "rule" and self.approvals.is_approved(order.name))
        return order if is_free else read_only_spec(order)

    def descendant_runs(self, name: str) -> list[AgentRun] | None:
        """Those of the `descendants` of *name*; None while some are about to be that it has not asked for."""
        return None if self._spawning_for[name] else [self.runs[below] for below in self.descendants(name)]

    def _emit_change(self, event: Event) -> None:
        self.emit(event)
        self.changes.notify()

    async def keep_agent(
        self, order: SpawnSpec, done: AgentOutcome | None = None, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
    ) -> AgentOutcome:
        """Run an agent, and run it again, from its transcript, whenever a message comes for it after it was *done*.

        Returns when it has ended otherwise, or cannot be run again. In all else as `run_agent`.
        """
        return await self.run_agent(attrs.evolve(order, is_kept=True), done, task_status=task_status)

    async def run_agent(
        self, order: SpawnSpec, done: AgentOutcome | None = None, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
    ) -> AgentOutcome:
        """Own one agent's process from its start until it is reaped; started once it is ready.

        Its subagents end with it. After a crash it is started again from its transcript, as `restarts` says; those of
        its subagents that have processes of their own work on meanwhile. The parent has been told once what came of
        the task when this returns: by the agent, or by the root for one that could not. One that is *done* has no
        process before a message comes for it. Cancelled, it asks the agent to end, waits, terminates it, waits, and
        kills what is left. Raises `StartFailed`, and `MailboxError` for a name that cannot be had.
        """
        tenure = self.runs[order.name] = AgentRun(order, done)
        try:
            with tenure.scope:
                await self._supervise(tenure, task_status)
        finally:
            await self._release(tenure)
        # Not if the whole session ends: what is open then can be decided when it is resumed.
        if (outcome := tenure.outcome) is None:
            raise StartFailed(f"{tenure.stopped_by} stopped it before it had begun")
        await self.approvals.close_for_agent(order.name, outcome.incarnation)
        return outcome

    async def _supervise(self, tenure: AgentRun, task_status: TaskStatus) -> None:
        if (outcome := tenure.done) is None:
            outcome = await self._run_until_done(tenure, tenure.order, task_status)
        else:
            assert tenure.order.report is not None
            task_status.started(Spawned(name=outcome.name, incarnation=outcome.incarnation, report=tenure.order.report))
        try:
            while tenure.order.is_kept and outcome.end == "done":
                await self._wait_for_mail(outcome)
                order = attrs.evolve(tenure.order, task="", report=None, is_taken_up=False)
                outcome = await self._run_until_done(tenure, order, trio.TASK_STATUS_IGNORED)
        except (StartFailed, MailboxError) as exc:
            # Nobody waits for it any more; what was written to it is where it was.
            self.emit(LayerFailed(layer="supervisor", reason=f"{outcome.name} could not be taken up again: {exc}"))

    async def _release(self, tenure: AgentRun) -> None:
        """Nobody runs it any more, so that it takes no more mail."""
        is_done = tenure.outcome is not None and tenure.outcome.end == "done"
        with trio.move_on_after(FINISH_TIMEOUT, shield=True):
            if tenure.order.is_kept and is_done:
                await self.status.set_state(tenure.order.name, "ended")
            if tenure.stopped_by is not None:
                await self.unfinished.discard(tenure.order.name)
        del self.runs[tenure.order.name]
        tenure.is_over.set()

    async def _wait_for_mail(self, outcome: AgentOutcome) -> None:
        """Return when something waits for an agent that has no process; it is left where it is."""
        async with self.mail.files.open_inbox(outcome.name, outcome.incarnation) as inbox:
            while not inbox.take_nowait(1):  # not acknowledged, it comes again to the agent
                await inbox.wait()

    async def _run_until_done(self, tenure: AgentRun, order: SpawnSpec, task_status: TaskStatus) -> AgentOutcome:
        """Start the agent, and again each time it crashes, until it has ended or is given up; its parent is told."""
        attempts = tenure.attempts = RunAttempts(order, self.restarts)
        failure: StartFailed | MailboxError | None = None
        self.running.add(order.name)
        await self.unfinished.begin(order, attempts.report)
        try:
            async with trio.open_nursery() as nursery:
                nest = tenure.spawner = ChildAgents(self, order, nursery)
                if order.team or self.unfinished.of(order.name):
                    nursery.start_soon(nest.start_team)
                try:
                    await self._run_with_restarts(tenure, attempts, nest, task_status)
                except (StartFailed, MailboxError) as exc:
                    failure = exc
                finally:
                    nest.is_closed = True
                nursery.cancel_scope.cancel()
        finally:
            await finish_run(tenure, attempts, self, self.unfinished)
            self.running.remove(order.name)
        if failure is not None:  # raised out here, where it is not put into a group
            raise failure
        assert attempts.outcome is not None
        return attempts.outcome

    async def _run_with_restarts(
        self, tenure: AgentRun, attempts: RunAttempts, nest: ChildAgents, task_status: TaskStatus
    ) -> None:
        wait = await self._run_once(tenure, attempts, nest, task_status)
        while wait is not None:
            await trio.sleep(wait)
            # A teammate in the process of its parent begins again where that does. If it does not, both are over.
            while attempts.order.is_shared and not self.is_ready(attempts.order.parent or MAIN):
                await self.changes.next()
            try:
                wait = await self._run_once(tenure, attempts, nest, trio.TASK_STATUS_IGNORED)
            except (StartFailed, MailboxError) as exc:
                attempts.give_up(str(exc))
                return

    async def _run_once(
        self, tenure: AgentRun, attempts: RunAttempts, nest: ChildAgents, task_status: TaskStatus
    ) -> float | None:
        """One start, from the roster to the reaped process; seconds to wait before the next, None for no other."""
        order = nest.order = await prepare_workspace(
            attrs.evolve(attempts.order, task=attempts.task), self.mail.session
        )
        member = await self.mail.roster.join(order.name, tenure.order.member_origin)
        charge = AgentProcess(
            order, incarnation_spec(order, member, attempts.report, self, self.unfinished), self._emit_change
        )
        attempts.begin(charge)
        wait: float | None = None
        try:
            async with self.gateway.open_client(
                order.name, incarnation=member.incarnation, parent=order.parent, own=order.own, subtree=order.subtree
            ) as asker:
                await self.run_process(charge, tenure, asker, nest, task_status)
        finally:
            if charge.child is not None:
                # A subagent that has lost the process it shared ends with it: its parent's call for it has ended, too.
                is_lost = isinstance(charge.child, InProcessAgent) and charge.child.is_lost
                charge.is_dismissed = charge.is_dismissed or (is_lost and not order.stays)
                wait = attempts.end(charge)
        return wait
