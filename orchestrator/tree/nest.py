"""Where the subagents of one agent are owned, by the one task that runs the agent."""

from typing import TYPE_CHECKING

import attrs
import trio

from coterie.agents.events import LayerFailed
from coterie.agents.nearest import suggestion
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.starting import StartFailed
from coterie.orchestrator.tree.charge import Outcome
from coterie.orchestrator.tree.founding import start_team
from coterie.orchestrator.tree.open_orders import OpenOrder
from coterie.orchestrator.tree.ordering import Order, order_for
from coterie.orchestrator.tree.resting import wait_for_rest

if TYPE_CHECKING:
    from coterie.orchestrator.tree.supervisor import Supervisor


@attrs.define(eq=False)
class Nest:
    """Where the subagents of one agent are owned: they outlive a crash of it, and not its task."""

    supervisor: "Supervisor"
    order: Order
    """The agent's latest, with the place that it has."""
    nursery: trio.Nursery
    is_closed: bool = attrs.field(default=False, init=False)
    """Whether the agent has ended, so that nobody can be started for it."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`."""
        try:
            with self.supervisor.claim(request) as name:
                order = await self._order(request, name)
                # Another of that name may have been granted something, when no root was there to see it end.
                await self.supervisor.approvals.close_of(name)
                if self.is_closed:
                    raise SpawnRefused(f"{self.order.name} has ended, and with it all that it could have started.")
                spawned: Spawned = await self.nursery.start(self.supervisor.keep_agent, order)
        except (StartFailed, MailboxError) as exc:
            raise SpawnRefused(f"No agent was started: {exc}.") from exc
        return spawned

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`."""
        own = self.supervisor.descendants(self.order.name)
        if name not in own:
            raise SpawnRefused(f"You have no agent {name!r} at work that could be stopped: {suggestion(name, own)}")
        await self.supervisor.stop(name, self.order.name)

    async def ask_to_end(self, request: Envelope) -> None:
        """As `Spawner.ask_to_end`: who asks is known by the socket, and only the lead may."""
        asker, name = self.order.name, request.recipient.name
        own = self.supervisor.descendants(asker)
        if asker != MAIN or name not in own:
            raise SpawnRefused(f"you have no agent {name!r} at work that you could ask to end: {suggestion(name, own)}")
        sender = attrs.evolve(request.sender, name=asker, session=self.supervisor.office.session.id, kind="lead")
        self.supervisor.ask_to_end(attrs.evolve(request, sender=sender))
        await trio.lowlevel.checkpoint()

    async def rest(self) -> None:
        """As `Spawner.rest`."""
        supervisor, name = self.supervisor, self.order.name
        await wait_for_rest(lambda: supervisor.below(name), supervisor.office.directory, supervisor.changes)

    async def found_team(self) -> None:
        """Start the agent's team, once it is ready to be their parent: whom an earlier root ran, and who is new."""
        supervisor, lead = self.supervisor, self.order.name
        with supervisor.starting_for(lead):
            while not supervisor.is_ready(lead):
                await supervisor.changes.next()
            for order in supervisor.open_orders.of(lead):
                await self._take_up(order)
            await start_team(self.order.team, self, lead, supervisor.announcer, supervisor.tell)

    async def _take_up(self, left: OpenOrder) -> None:
        """Run on whom an earlier root ran, or keep whom it kept; who cannot be is reported as failed."""
        supervisor = self.supervisor
        try:
            order = await self._order(left.request, left.name)
            order = attrs.evolve(order, report=left.report, is_taken_up=True)
            done = await self._done(left) if left.is_done else None
            supervisor.open_orders.taken_up(left.name)
            await self.nursery.start(supervisor.keep_agent, order, done)
        except (SpawnRefused, StartFailed, MailboxError) as exc:
            supervisor.tell(LayerFailed(layer="supervisor", reason=f"{left.name} could not be taken up again: {exc}"))
            if not left.is_done:
                await supervisor.announcer.give_up(left.name, left.parent, left.report, str(exc))
            await supervisor.open_orders.strike(left.name)

    async def _done(self, left: OpenOrder) -> Outcome:
        """What became of one whose task is done; from now on it can be written to again."""
        roster = self.supervisor.office.roster
        await roster.set_state(left.name, "idle")
        incarnation = roster.members()[left.name].incarnation
        return Outcome(name=left.name, incarnation=incarnation, end="done", status=0)

    async def _order(self, request: SpawnRequest, name: str) -> Order:
        """What the agent wants, as far as it may want it now. Raises `SpawnRefused`."""
        parent, project = self.supervisor.bounded(self.order), self.supervisor.office.session.project
        return await trio.to_thread.run_sync(order_for, request, name, parent, project)
