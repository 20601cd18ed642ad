"""Runs the agents of a session: each in one task, from its first start until nobody runs it any more."""

import contextlib
from collections import Counter
from collections.abc import Iterator

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events import Event, LayerFailed
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.settings.schema import AgentSettings
from coterie.orchestrator.starting import StartFailed
from coterie.orchestrator.tree.assigning import duty_of
from coterie.orchestrator.tree.charge import Charge, Outcome
from coterie.orchestrator.tree.concluding import CONCLUDING, conclude
from coterie.orchestrator.tree.hosting import Guest
from coterie.orchestrator.tree.nest import Nest
from coterie.orchestrator.tree.open_orders import OpenOrders
from coterie.orchestrator.tree.ordering import Order, choose_name, only_reading
from coterie.orchestrator.tree.owning import ProcessOwner
from coterie.orchestrator.tree.placing import place
from coterie.orchestrator.tree.restarting import Attempts, Restarts
from coterie.orchestrator.tree.resting import Changes
from coterie.orchestrator.tree.tenure import Tenure

TaskStatus = trio.TaskStatus[Spawned]


@attrs.define(eq=False, kw_only=True)
class Supervisor(ProcessOwner):
    """Runs the agents of one session. Its methods are for tasks of the root, on its main thread."""

    restarts: Restarts = attrs.field(factory=Restarts)
    at_once: int = 20
    """Agents that may be at work at the same time."""
    running: set[str] = attrs.field(factory=set, init=False)
    """Who has a process, or is getting one."""
    _claimed: set[str] = attrs.field(factory=set, init=False)
    """Names of those who are about to be put on the roster."""
    _starting_for: Counter[str] = attrs.field(factory=Counter, init=False)
    """For whom others are about to be started, without having asked: a lead for its team, or for the user."""
    changes: Changes = attrs.field(factory=Changes, init=False)
    """Of what any of them does."""
    open_orders: OpenOrders = attrs.field(init=False)
    """Whom the next root would run on, if this one were killed."""

    def __attrs_post_init__(self) -> None:
        self.open_orders = OpenOrders(self.office.session, self.approvals.records.key, self.tell)

    def follow(self, settings: AgentSettings) -> None:
        """Hold to what the user has set."""
        self.at_once = settings.at_once
        self.restarts = Restarts(limit=settings.starts - 1)
        self.stall_after = settings.stall_after

    @contextlib.contextmanager
    def claim(self, request: SpawnRequest) -> Iterator[str]:
        """A name that is nobody else's until the block ends, and by then on the roster. Raises `SpawnRefused`."""
        if len(self.running | self._claimed) >= self.at_once:
            raise SpawnRefused(f"{self.at_once} agents are at work, and there may be no more; wait for one to end.")
        taken = self._claimed | self.open_orders.names
        name = choose_name(request, self.office.roster.members(), taken)
        self._claimed.add(name)
        try:
            yield name
        finally:
            self._claimed.remove(name)

    @contextlib.contextmanager
    def starting_for(self, name: str) -> Iterator[None]:
        """Within the block others are about to be started for *name*: it does not find all of its own at rest."""
        self._starting_for[name] += 1
        try:
            yield
        finally:
            self._starting_for[name] -= 1
            self.changes.tell()

    async def spawn_for(self, name: str, request: SpawnRequest) -> Spawned:
        """Start an agent for *name* as if that had asked for it; it hears the report as mail, and waits for it.

        Like all that *name* has started, it ends with it. Raises `NotAtWork` and `SpawnRefused`.
        """
        tenure = self.tenure_of(name)
        spawner = tenure.spawner
        if spawner is None or not self.is_ready(name):
            raise SpawnRefused(f"{name} is starting or ending: nobody can be started for it now.")
        if request.fork is not None:
            raise SpawnRefused(f"Only {name} itself can say where a fork of it begins.")
        with self.starting_for(name):
            spawned = await spawner.spawn(request)
            charge = tenure.charge
            if charge is not None and charge.desk is not None and not request.stays:
                with contextlib.suppress(ControlLost):  # its next start expects it, if there is one
                    charge.desk.announce(spawned)
        return spawned

    def bounded(self, order: Order) -> Order:
        """*order* as far as who has it may pass on now: one that must plan starts others that may only read.

        So does one whose plan a rule has approved, since the rule has seen nothing of what they would change.
        """
        plan = order.plan
        is_free = plan is None or (plan.by != "rule" and self.approvals.is_approved(order.name))
        return order if is_free else only_reading(order)

    def below(self, name: str) -> list[Tenure] | None:
        """Those of the `descendants` of *name*; None while some are about to be that it has not asked for."""
        return None if self._starting_for[name] else [self.tenures[below] for below in self.descendants(name)]

    def _tell_change(self, event: Event) -> None:
        self.tell(event)
        self.changes.tell()

    async def keep_agent(
        self, order: Order, done: Outcome | None = None, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Run an agent, and run it again, from its transcript, whenever a message comes for it after it was *done*.

        Returns when it has ended otherwise, or cannot be run again. In all else as `run_agent`.
        """
        return await self.run_agent(attrs.evolve(order, is_kept=True), done, task_status=task_status)

    async def run_agent(
        self, order: Order, done: Outcome | None = None, *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Own one agent's process from its start until it is reaped; started once it is ready.

        Its subagents end with it. After a crash it is started again from its transcript, as `restarts` says; those of
        its subagents that have processes of their own work on meanwhile. The parent has been told once what came of
        the task when this returns: by the agent, or by the root for one that could not. One that is *done* has no
        process before a message comes for it. Cancelled, it asks the agent to end, waits, terminates it, waits, and
        kills what is left. Raises `StartFailed`, and `MailboxError` for a name that cannot be had.
        """
        tenure = self.tenures[order.name] = Tenure(order, done)
        try:
            with tenure.scope:
                await self._keep(tenure, task_status)
        finally:
            await self._let_go(tenure)
        # Not if the whole session ends: what is open then can be decided when it is resumed.
        if (outcome := tenure.outcome) is None:
            raise StartFailed(f"{tenure.stopped_by} stopped it before it had begun")
        await self.approvals.close_of(order.name, outcome.incarnation)
        return outcome

    async def _keep(self, tenure: Tenure, task_status: TaskStatus) -> None:
        if (outcome := tenure.done) is None:
            outcome = await self._do_task(tenure, tenure.order, task_status)
        else:
            assert tenure.order.report is not None
            task_status.started(Spawned(name=outcome.name, incarnation=outcome.incarnation, report=tenure.order.report))
        try:
            while tenure.order.is_kept and outcome.end == "done":
                await self._wait_for_mail(outcome)
                order = attrs.evolve(tenure.order, task="", report=None, is_taken_up=False)
                outcome = await self._do_task(tenure, order, trio.TASK_STATUS_IGNORED)
        except (StartFailed, MailboxError) as exc:
            # Nobody waits for it any more; what was written to it is where it was.
            self.tell(LayerFailed(layer="supervisor", reason=f"{outcome.name} could not be taken up again: {exc}"))

    async def _let_go(self, tenure: Tenure) -> None:
        """Nobody runs it any more, so that it takes no more mail."""
        is_done = tenure.outcome is not None and tenure.outcome.end == "done"
        with trio.move_on_after(CONCLUDING, shield=True):
            if tenure.order.is_kept and is_done:
                await self.announcer.set_state(tenure.order.name, "ended")
            if tenure.stopped_by is not None:
                await self.open_orders.strike(tenure.order.name)
        del self.tenures[tenure.order.name]
        tenure.is_over.set()

    async def _wait_for_mail(self, outcome: Outcome) -> None:
        """Return when something waits for an agent that has no process; it is left where it is."""
        async with self.office.files.open_inbox(outcome.name, outcome.incarnation) as inbox:
            while not inbox.take_nowait(1):  # not acknowledged, it comes again to the agent
                await inbox.wait()

    async def _do_task(self, tenure: Tenure, order: Order, task_status: TaskStatus) -> Outcome:
        """Start the agent, and again each time it crashes, until it has ended or is given up; its parent is told."""
        attempts = tenure.attempts = Attempts(order, self.restarts)
        failure: StartFailed | MailboxError | None = None
        self.running.add(order.name)
        await self.open_orders.begin(order, attempts.report)
        try:
            async with trio.open_nursery() as nursery:
                nest = tenure.spawner = Nest(self, order, nursery)
                if order.team or self.open_orders.of(order.name):
                    nursery.start_soon(nest.found_team)
                try:
                    await self._attempt_all(tenure, attempts, nest, task_status)
                except (StartFailed, MailboxError) as exc:
                    failure = exc
                finally:
                    nest.is_closed = True
                nursery.cancel_scope.cancel()
        finally:
            await conclude(tenure, attempts, self, self.open_orders)
            self.running.remove(order.name)
        if failure is not None:  # raised out here, where it is not put into a group
            raise failure
        assert attempts.outcome is not None
        return attempts.outcome

    async def _attempt_all(self, tenure: Tenure, attempts: Attempts, nest: Nest, task_status: TaskStatus) -> None:
        wait = await self._attempt(tenure, attempts, nest, task_status)
        while wait is not None:
            await trio.sleep(wait)
            # A teammate in the process of its parent begins again where that does. If it does not, both are over.
            while attempts.order.is_shared and not self.is_ready(attempts.order.parent or MAIN):
                await self.changes.next()
            try:
                wait = await self._attempt(tenure, attempts, nest, trio.TASK_STATUS_IGNORED)
            except (StartFailed, MailboxError) as exc:
                attempts.give_up(str(exc))
                return

    async def _attempt(self, tenure: Tenure, attempts: Attempts, nest: Nest, task_status: TaskStatus) -> float | None:
        """One start, from the roster to the reaped process; seconds to wait before the next, None for no other."""
        order = nest.order = await place(attrs.evolve(attempts.order, task=attempts.task), self.office.session)
        member = await self.office.roster.join(order.name, tenure.order.engagement)
        charge = Charge(order, duty_of(order, member, attempts.report, self, self.open_orders), self._tell_change)
        attempts.begin(charge)
        wait: float | None = None
        try:
            async with self.gate.open_asker(
                order.name, incarnation=member.incarnation, parent=order.parent, own=order.own, subtree=order.subtree
            ) as asker:
                await self.own(charge, tenure, asker, nest, task_status)
        finally:
            if charge.child is not None:
                # A subagent that has lost the process it shared ends with it: its parent's call for it has ended, too.
                is_lost = isinstance(charge.child, Guest) and charge.child.is_lost
                charge.is_dismissed = charge.is_dismissed or (is_lost and not order.stays)
                wait = attempts.end(charge)
        return wait
