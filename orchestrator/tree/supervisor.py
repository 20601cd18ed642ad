"""One task owns each agent's process: it starts it, serves it, stops it and reaps it, and says what became of it."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events import Event, LayerFailed
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.clock import Clock
from coterie.mailbox.contract import Member, MemberState
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.ids import new_message_id
from coterie.mailbox.lifecycle import ShutdownRequest, TaskNotification
from coterie.orchestrator.gate import Asker, SessionGate
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.starting import Child, Start, Starter, StartFailed
from coterie.orchestrator.tree.agent_process import ENTRY
from coterie.orchestrator.tree.charge import ERRORS, Charge, Outcome
from coterie.orchestrator.tree.desk import Desk
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.ordering import Order, choose_name, order_for
from coterie.orchestrator.tree.remains import AGENT_VARIABLE, SESSION_VARIABLE, agent_tag, end_remains
from coterie.orchestrator.tree.reporting import report_to
from coterie.orchestrator.tree.stopping import stop

ROOT = "root"
"""What the root calls itself in events and in mail."""

CONCURRENT = 20
"""Agents that may be at work in a session at once."""


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
class Supervisor:
    """Runs the agents of one session. Its methods are for tasks of the root, on its main thread."""

    office: PostOffice
    starter: Starter
    gate: SessionGate
    tell: Callable[[Event], None]
    clock: Clock
    server: str | None = None
    """The URL of the embedded server, where that plays the model."""
    grace: float = 5.0
    """Seconds for each step of stopping: asked, told by SIGTERM, killed."""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    running: set[str] = attrs.field(factory=set, init=False)
    """Who has a process, or is getting one."""
    _claimed: set[str] = attrs.field(factory=set, init=False)
    """Names of those who are about to be put on the roster."""

    @contextlib.contextmanager
    def claim(self, request: SpawnRequest) -> Iterator[str]:
        """A name that is nobody else's until the block ends, and by then on the roster. Raises `SpawnRefused`."""
        if len(self.running | self._claimed) >= CONCURRENT:
            raise SpawnRefused(f"{CONCURRENT} agents are at work, and there may be no more; wait for one to end.")
        name = choose_name(request, self.office.roster.members(), self._claimed)
        self._claimed.add(name)
        try:
            yield name
        finally:
            self._claimed.remove(name)

    async def keep_agent(
        self, order: Order, *, task_status: trio.TaskStatus[Spawned] = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Run an agent, and run it again, from its transcript, whenever a message comes for it after it was done.

        Returns when it has ended otherwise, or cannot be run again. The first time as `run_agent`.
        """
        order = attrs.evolve(order, is_kept=True)
        outcome = await self.run_agent(order, task_status=task_status)
        try:
            while outcome.end == "done":
                await self._wait_for_mail(outcome)
                outcome = await self.run_agent(attrs.evolve(order, task=""))
        except (StartFailed, MailboxError) as exc:
            # Nobody waits for it any more; what was written to it is where it was.
            self.tell(LayerFailed(layer="supervisor", reason=f"{order.name} could not be taken up again: {exc}"))
        return outcome

    async def _wait_for_mail(self, outcome: Outcome) -> None:
        """Return when something waits for an agent that has no process; it is left where it is."""
        async with self.office.files.open_inbox(outcome.name, outcome.incarnation) as inbox:
            while not inbox.take_nowait(1):  # not acknowledged, it comes again to the agent
                await inbox.wait()

    async def run_agent(
        self, order: Order, *, task_status: trio.TaskStatus[Spawned] = trio.TASK_STATUS_IGNORED
    ) -> Outcome:
        """Own one agent's process from its start until it is reaped; started once it is ready.

        Its subagents end with it. The parent has been told what came of the task when this returns: by the agent, or
        by the root for one that could not. Cancelled, it asks the agent to end, waits, terminates it, waits, and kills
        what is left. Raises `StartFailed`, and `MailboxError` for a name that cannot be had.
        """
        self.running.add(order.name)
        try:
            member = await self.office.roster.join(order.name)
            return await self._run(Charge(order, self._duty(order, member), self.tell), task_status)
        finally:
            self.running.remove(order.name)

    async def _run(self, charge: Charge, task_status: trio.TaskStatus[Spawned]) -> Outcome:
        order = charge.order
        charge.change("starting")
        try:
            async with self.gate.open_asker(
                order.name,
                incarnation=charge.duty.incarnation,
                parent=order.parent,
                own=order.own,
                subtree=order.subtree,
            ) as asker:
                await self._own(charge, asker, task_status)
        finally:
            with trio.move_on_after(self.grace, shield=True):
                await self._conclude(charge)
        return charge.outcome()

    async def _own(self, charge: Charge, asker: Asker, task_status: trio.TaskStatus[Spawned]) -> None:
        near, far = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(near)) as stream:
            with far:
                charge.child = await self._start(charge.duty, far)
            await self._attend(charge, charge.child, asker, stream, task_status)

    async def _attend(
        self,
        charge: Charge,
        child: Child,
        asker: Asker,
        stream: trio.SocketStream,
        task_status: trio.TaskStatus[Spawned],
    ) -> None:
        async with trio.open_nursery() as nursery:
            desk = Desk(asker, charge.hear, _Nest(self, charge.order, nursery))
            # Served to its end, also when this is cancelled: it is asked to end over the same socket.
            serving = trio.CancelScope(shield=True)
            nursery.start_soon(self._serve, desk, stream, child, serving)
            task_status.started(charge.spawned())
            try:
                await child.ended()
            finally:
                await self._stop(charge, desk)
                serving.cancel()
                nursery.cancel_scope.cancel()

    async def _start(self, duty: Duty, control: socket.socket) -> Child:
        directory = self.office.session.agent_directory(duty.name)
        start = Start(
            title=f"coterie {duty.name}",
            entry=ENTRY,
            payload=duty.to_bytes(),
            directory=self.office.session.project,
            environment={
                **self.environment,
                SESSION_VARIABLE: duty.session,
                AGENT_VARIABLE: agent_tag(duty.name, duty.incarnation),
            },
        )
        with (directory / ERRORS).open("ab", buffering=0) as errors:
            return await self.starter.start(start, [control.fileno()], stderr=errors.fileno())

    async def _serve(self, desk: Desk, stream: trio.SocketStream, child: Child, serving: trio.CancelScope) -> None:
        with serving:
            try:
                await desk.run(stream)
            except ControlLost as exc:
                # It cannot be talked to, so it cannot be asked either.
                self.tell(LayerFailed(layer="control", reason=str(exc)))
                child.send_signal(signal.SIGKILL)

    async def _stop(self, charge: Charge, desk: Desk) -> None:
        """End the process, whatever it takes, and all that it left; returns when it is reaped."""
        assert charge.child is not None
        duty, child = charge.duty, charge.child
        with trio.CancelScope(shield=True):
            if not child.has_ended():
                charge.change("stopping")
                self._ask_to_end(duty, desk)
            await stop(child, self.grace)
            with trio.move_on_after(self.grace):
                await end_remains(duty.session, agent_tag(duty.name, duty.incarnation))

    def _ask_to_end(self, duty: Duty, desk: Desk) -> None:
        request = ShutdownRequest(reason="the session ends", deadline=self.grace)
        envelope = Envelope(
            sender=self._sender(),
            recipient=Recipient(name=duty.name, incarnation=duty.incarnation),
            sequence=1,
            kind=request.kind,
            body=request.to_body(),
            created=self.clock.now(),
        )
        with contextlib.suppress(ControlLost):  # then it is told by a signal
            desk.deliver(envelope)

    async def _conclude(self, charge: Charge) -> None:
        """Say what became of the process, to the parent too, if the agent could not."""
        name = charge.duty.name
        if charge.child is None:
            await self._set_state(name, "ended")
            charge.change("failed", "It could not be started.")
            return
        outcome = charge.outcome()
        if outcome.end != "done":
            await self._report(charge.duty, outcome)
        # Before it is told, so that whoever hears of it can write to one that is kept.
        await self._set_state(name, "idle" if charge.order.is_kept and outcome.end == "done" else "ended")
        charge.change(outcome.end, outcome.words)

    async def _report(self, duty: Duty, outcome: Outcome) -> None:
        if duty.parent is None:
            return
        report = TaskNotification(status="failed" if outcome.end == "failed" else "killed", summary=outcome.words)
        try:
            await report_to(duty.parent, report, duty.report, self.office.router(), self._sender())
        except MailboxError as exc:
            self.tell(LayerFailed(layer="mail", reason=f"{duty.parent} could not be told of {duty.name}: {exc}"))

    async def _set_state(self, name: str, state: MemberState) -> None:
        try:
            await self.office.roster.set_state(name, state)
        except MailboxError as exc:
            self.tell(LayerFailed(layer="mail", reason=str(exc)))

    def _sender(self) -> Sender:
        return Sender(name=ROOT, incarnation=1, session=self.office.session.id, kind="system")

    def _duty(self, order: Order, member: Member) -> Duty:
        return Duty(
            session=self.office.session.id,
            name=order.name,
            incarnation=member.incarnation,
            parent=order.parent,
            report=new_message_id(),
            task=order.task,
            model=order.model,
            settings=order.settings,
            definition=order.definition,
            server=self.server,
            is_bare=order.is_bare,
            fork=order.fork,
            stays=order.stays,
            above=order.above,
        )
