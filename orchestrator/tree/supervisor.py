"""Runs the agents of a session: each in one task, from its first start until nobody runs it any more."""

import contextlib
import signal
from collections.abc import Iterator
from functools import partial

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events import LayerFailed
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.mailbox.contract import Member
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.ids import MessageId
from coterie.orchestrator.settings.schema import AgentSettings
from coterie.orchestrator.starting import StartFailed
from coterie.orchestrator.tree.charge import Charge, Outcome
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.ordering import Order, choose_name, order_for
from coterie.orchestrator.tree.owning import ProcessOwner
from coterie.orchestrator.tree.placing import leave_place, place
from coterie.orchestrator.tree.restarting import Attempts, Restarts
from coterie.orchestrator.tree.tenure import NotAtWork, Tenure

CONCLUDING = 5.0
"""Seconds that it may take to say what became of an agent."""


@attrs.frozen
class _Nest:
    """Where the subagents of one agent are owned: they do not outlive it."""

    supervisor: "Supervisor"
    order: Order
    nursery: trio.Nursery

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`."""
        office = self.supervisor.office
        try:
            with self.supervisor.claim(request) as name:
                order = await trio.to_thread.run_sync(order_for, request, name, self.order, office.session.project)
                spawned: Spawned = await self.nursery.start(self.supervisor.keep_agent, order)
        except (StartFailed, MailboxError) as exc:
            raise SpawnRefused(f"No agent was started: {exc}.") from exc
        return spawned


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
        name = choose_name(request, self.office.roster.members(), self._claimed)
        self._claimed.add(name)
        try:
            yield name
        finally:
            self._claimed.remove(name)

    def interrupt(self, name: str) -> None:
        """End the turn that *name* is at; nothing happens if it has no process."""
        tenure = self.tenures.get(name)
        charge = None if tenure is None or tenure.attempts is None else tenure.attempts.charge
        if charge is not None and charge.child is not None:
            charge.is_dismissed = True
            charge.child.send_signal(signal.SIGTERM)

    def move_to_background(self, name: str) -> None:
        """Let whoever waits for *name*, which it started, go on; the report will come as mail. Raises `NotAtWork`.

        Nothing happens if nobody waits for it.
        """
        tenure = self._tenure(name)
        parent = self.tenures.get(tenure.order.parent or "")
        charge = None if parent is None or parent.attempts is None else parent.attempts.charge
        if charge is not None and charge.desk is not None:
            with contextlib.suppress(ControlLost):  # it has ended, and waits for nobody
                charge.desk.release(name)

    async def stop(self, name: str, by: str = "the user") -> None:
        """Stop *name* and its subagents, as cancellation of `run_agent` does; no message takes it up again.

        Returns when none of them is left; its parent is told who stopped it. Raises `NotAtWork`.
        """
        tenure = self._tenure(name)
        tenure.stop(by)
        await tenure.is_over.wait()

    def _tenure(self, name: str) -> Tenure:
        if name not in self.tenures:
            raise NotAtWork(name, tuple(self.tenures))
        return self.tenures[name]

    async def keep_agent(
        self, order: Order, *, task_status: trio.TaskStatus[Spawned] = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Run an agent, and run it again, from its transcript, whenever a message comes for it after it was done.

        Returns when it has ended otherwise, or cannot be run again. In all else as `run_agent`.
        """
        return await self.run_agent(attrs.evolve(order, is_kept=True), task_status=task_status)

    async def run_agent(
        self, order: Order, *, task_status: trio.TaskStatus[Spawned] = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Own one agent's process from its start until it is reaped; started once it is ready.

        Its subagents end with it. After a crash it is started again from its transcript, as `restarts` says. The
        parent has been told once what came of the task when this returns: by the agent, or by the root for one that
        could not. Cancelled, it asks the agent to end, waits, terminates it, waits, and kills what is left. Raises
        `StartFailed`, and `MailboxError` for a name that cannot be had.
        """
        tenure = self.tenures[order.name] = Tenure(order)
        try:
            with tenure.scope:
                await self._keep(tenure, task_status)
        finally:
            await self._let_go(tenure)
        if tenure.attempts is None or tenure.attempts.outcome is None:
            raise StartFailed(f"{tenure.stopped_by} stopped it before it had begun")
        return tenure.attempts.outcome

    async def _keep(self, tenure: Tenure, task_status: trio.TaskStatus[Spawned]) -> None:
        outcome = await self._do_task(tenure, tenure.order, task_status)
        try:
            while tenure.order.is_kept and outcome.end == "done":
                await self._wait_for_mail(outcome)
                order = attrs.evolve(tenure.order, task="")
                outcome = await self._do_task(tenure, order, trio.TASK_STATUS_IGNORED)
        except (StartFailed, MailboxError) as exc:
            # Nobody waits for it any more; what was written to it is where it was.
            self.tell(LayerFailed(layer="supervisor", reason=f"{outcome.name} could not be taken up again: {exc}"))

    async def _let_go(self, tenure: Tenure) -> None:
        """Nobody runs it any more, so that it takes no more mail."""
        is_done = tenure.attempts is not None and tenure.attempts.is_done
        if tenure.order.is_kept and is_done:
            with trio.move_on_after(CONCLUDING, shield=True):
                await self.announcer.set_state(tenure.order.name, "ended")
        del self.tenures[tenure.order.name]
        tenure.is_over.set()

    async def _wait_for_mail(self, outcome: Outcome) -> None:
        """Return when something waits for an agent that has no process; it is left where it is."""
        async with self.office.files.open_inbox(outcome.name, outcome.incarnation) as inbox:
            while not inbox.take_nowait(1):  # not acknowledged, it comes again to the agent
                await inbox.wait()

    async def _do_task(self, tenure: Tenure, order: Order, task_status: trio.TaskStatus[Spawned]) -> Outcome:
        """Start the agent, and again each time it crashes, until it has ended or is given up; its parent is told."""
        attempts = tenure.attempts = Attempts(order, self.restarts)
        self.running.add(order.name)
        try:
            wait = await self._attempt(tenure, attempts, task_status)
            while wait is not None:
                await trio.sleep(wait)
                wait = await self._attempt_again(tenure, attempts)
        finally:
            await self._conclude(tenure, attempts)
            self.running.remove(order.name)
        assert attempts.outcome is not None
        return attempts.outcome

    async def _attempt_again(self, tenure: Tenure, attempts: Attempts) -> float | None:
        try:
            return await self._attempt(tenure, attempts, trio.TASK_STATUS_IGNORED)
        except (StartFailed, MailboxError) as exc:
            attempts.give_up(str(exc))
            return None

    async def _attempt(self, tenure: Tenure, attempts: Attempts, task_status: trio.TaskStatus[Spawned]) -> float | None:
        """One start, from the roster to the reaped process; seconds to wait before the next, None for no other."""
        order = await place(attrs.evolve(attempts.order, task=attempts.task), self.office.session)
        member = await self.office.roster.join(order.name, tenure.order.engagement)
        charge = Charge(order, self._duty(order, member, attempts.report), self.tell)
        attempts.begin(charge)
        wait: float | None = None
        try:
            async with self.gate.open_asker(
                order.name, incarnation=member.incarnation, parent=order.parent, own=order.own, subtree=order.subtree
            ) as asker:
                await self.own(charge, tenure, asker, partial(_Nest, self, order), task_status)
        finally:
            if charge.child is not None:
                wait = attempts.end(charge)
        return wait

    async def _conclude(self, tenure: Tenure, attempts: Attempts) -> None:
        """Say what became of the task, to the parent too, if the agent could not."""
        if (charge := attempts.charge) is None:
            return
        if tenure.stopped_by is not None:
            attempts.stop(tenure.stopped_by)
        left = await leave_place(charge.order, self.grace)
        with trio.move_on_after(CONCLUDING, shield=True):
            if attempts.outcome is not None and not attempts.is_done:
                await self.announcer.report(charge.duty, attempts.outcome, left)
            # Before it is told, so that whoever hears of it can write to one that is kept.
            is_kept = tenure.order.is_kept and attempts.is_done and tenure.stopped_by is None
            await self.announcer.set_state(charge.duty.name, "idle" if is_kept else "ended")
        if attempts.outcome is None:
            charge.change("failed", "It could not be started.")
        else:
            charge.change(attempts.outcome.end, attempts.outcome.words)

    def _duty(self, order: Order, member: Member, report: MessageId) -> Duty:
        return Duty(
            session=self.office.session.id,
            name=order.name,
            incarnation=member.incarnation,
            parent=order.parent,
            report=report,
            task=order.task,
            model=order.model,
            settings=order.settings,
            definition=order.definition,
            server=self.server,
            is_bare=order.is_bare,
            fork=order.fork,
            stays=order.stays,
            directory=order.directory,
            worktree=order.worktree,
            can_ask=self.user is not None,
            above=order.above,
            keys=None if self.office.keys is None else self.office.keys.to_hex(),
            believed=tuple(self.office.files.believed.get(order.name, ())),
            chore=order.chore,
        )
