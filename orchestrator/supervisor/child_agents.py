"""Child agents of one agent: spawning, stopping, and resuming those of an earlier root."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.spawn_request import Spawned, Spawner, SpawnRefused, SpawnRequest
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_process import AgentOutcome
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.idle import wait_until_idle
from coterie.orchestrator.supervisor.recovery import UnfinishedAgent
from coterie.orchestrator.supervisor.spawn_spec import SpawnSpec, resolve_spec
from coterie.session_directory import MAIN
from coterie.suggestions import did_you_mean

if TYPE_CHECKING:
    from coterie.orchestrator.supervisor.supervisor import Supervisor


async def spawn_team(
    requests: Iterable[SpawnRequest],
    spawner: Spawner,
    lead: str,
    announcer: StatusPublisher,
    tell: Callable[[Event], None],
) -> None:
    """Start what *requests* want, one after the other, as the *lead* would by *spawner*.

    Those without a task come first: whoever begins at once finds them there, and can write to them.
    Of one that cannot be started the lead is told by a message, and everybody by an event. Cancellation leaves those
    that have begun.
    """
    for request in sorted(requests, key=lambda request: bool(request.task)):
        try:
            await spawner.spawn(request)
        except SpawnRefused as exc:
            reason = f"{request.name} of your team could not be started. {exc.reason}"
            tell(LayerFailed(layer="team", reason=reason))
            await announcer.send_text(lead, reason)


@attrs.define(eq=False)
class ChildAgents:
    """Where the subagents of one agent are owned: they outlive a crash of it, and not its task."""

    supervisor: "Supervisor"
    order: SpawnSpec
    """The agent's latest, with the place that it has."""
    nursery: trio.Nursery
    is_closed: bool = attrs.field(default=False, init=False)
    """Whether the agent has ended, so that nobody can be started for it."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`."""
        try:
            with self.supervisor.claim(request) as name:
                order = await self._resolve(request, name)
                # Another of that name may have been granted something, when no root was there to see it end.
                await self.supervisor.approvals.close_for_agent(name)
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
            raise SpawnRefused(f"You have no agent {name!r} at work that could be stopped: {did_you_mean(name, own)}")
        await self.supervisor.stop(name, self.order.name)

    async def request_shutdown(self, request: Envelope) -> None:
        """As `Spawner.request_shutdown`: who asks is known by the socket, and only the lead may."""
        asker, name = self.order.name, request.recipient.name
        own = self.supervisor.descendants(asker)
        if asker != MAIN or name not in own:
            raise SpawnRefused(
                f"you have no agent {name!r} at work that you could ask to end: {did_you_mean(name, own)}"
            )
        sender = attrs.evolve(request.sender, name=asker, session=self.supervisor.mail.session.id, kind="lead")
        self.supervisor.request_shutdown(attrs.evolve(request, sender=sender))
        await trio.lowlevel.checkpoint()

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`."""
        supervisor, name = self.supervisor, self.order.name
        await wait_until_idle(lambda: supervisor.descendant_runs(name), supervisor.mail.directory, supervisor.changes)

    async def start_team(self) -> None:
        """Start the agent's team, once it is ready to be their parent: whom an earlier root ran, and who is new."""
        supervisor, lead = self.supervisor, self.order.name
        with supervisor.spawning_for(lead):
            while not supervisor.is_ready(lead):
                await supervisor.changes.next()
            for order in supervisor.unfinished.of(lead):
                await self._resume_child(order)
            await spawn_team(self.order.team, self, lead, supervisor.status, supervisor.emit)

    async def _resume_child(self, left: UnfinishedAgent) -> None:
        """Run on whom an earlier root ran, or keep whom it kept; who cannot be is reported as failed."""
        supervisor = self.supervisor
        try:
            order = await self._resolve(left.request, left.name)
            order = attrs.evolve(order, report=left.report, is_taken_up=True)
            done = await self._resumed_outcome(left) if left.is_done else None
            supervisor.unfinished.mark_resumed(left.name)
            await self.nursery.start(supervisor.keep_agent, order, done)
        except (SpawnRefused, StartFailed, MailboxError) as exc:
            supervisor.emit(LayerFailed(layer="supervisor", reason=f"{left.name} could not be taken up again: {exc}"))
            if not left.is_done:
                await supervisor.status.publish_failure(left.name, left.parent, left.report, str(exc))
            await supervisor.unfinished.discard(left.name)

    async def _resumed_outcome(self, left: UnfinishedAgent) -> AgentOutcome:
        """What became of one whose task is done; from now on it can be written to again."""
        roster = self.supervisor.mail.roster
        await roster.set_state(left.name, "idle")
        incarnation = roster.members()[left.name].incarnation
        return AgentOutcome(name=left.name, incarnation=incarnation, end="done", status=0)

    async def _resolve(self, request: SpawnRequest, name: str) -> SpawnSpec:
        """What the agent wants, as far as it may want it now. Raises `SpawnRefused`."""
        parent, project = self.supervisor.with_inherited_limits(self.order), self.supervisor.mail.session.project
        return await trio.to_thread.run_sync(resolve_spec, request, name, parent, project)
