"""Child agents of one agent: spawning, stopping, and resuming those of an earlier root."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.root_link.spawn_request import Spawned, Spawner, SpawnRefused, SpawnRequest
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_outcome import AgentOutcome
from coterie.orchestrator.supervisor.agent_run import AgentRun, descendants
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.idle import StateChanges, wait_until_idle
from coterie.orchestrator.supervisor.recovery import UnfinishedAgent, UnfinishedAgents
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.orchestrator.supervisor.spawn import read_only_spec, resolve_run
from coterie.session_directory import MAIN
from coterie.suggestions import did_you_mean

ClaimName = Callable[[SpawnRequest], AbstractContextManager[str]]
"""Reserves the name of a new agent within a block. Raises `SpawnRefused`."""


RunAgent = Callable[..., Awaitable[AgentOutcome]]
"""Runs the agent of an `AgentRun`, as `Supervisor.run_agent`."""


async def spawn_team(
    requests: Iterable[SpawnRequest],
    spawner: Spawner,
    lead: str,
    status: StatusPublisher,
    emit: Callable[[Event], None],
) -> None:
    """Spawn the agents of *requests*, one after the other, for the *lead*.

    Those without a task come first, so that the others can write to them from the beginning. The lead is told of an
    agent that cannot be started by a message, and all others by an event. Cancellation leaves those that have begun.
    """
    for request in sorted(requests, key=lambda request: bool(request.task)):
        try:
            await spawner.spawn(request)
        except SpawnRefused as exc:
            reason = f"{request.name} of your team could not be started. {exc.reason}"
            emit(LayerFailed(layer="team", reason=reason))
            await status.send_text(lead, reason)


@attrs.define(eq=False, kw_only=True)
class ChildAgents:
    """Children of one agent at one task: they survive a crash of the agent, and end with the task."""

    parent: AgentRun
    nursery: trio.Nursery
    """Owner of the children's runs."""
    services: RootServices
    runs: Mapping[str, AgentRun]
    """All runs of the session, by name."""
    unfinished: UnfinishedAgents
    changes: StateChanges
    claim: ClaimName
    run_agent: RunAgent
    _is_closed: bool = attrs.field(default=False, init=False)

    def close(self) -> None:
        """Refuse further spawns, because the agent has ended."""
        self._is_closed = True

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Spawn a child, as `Spawner.spawn`."""
        try:
            with self.claim(request) as name:
                run = await self._resolve(request, name)
                # An earlier agent of that name may have approvals, if no root was there when it ended.
                await self.services.approvals.close_for_agent(name)
                if self._is_closed:
                    raise SpawnRefused(f"{self.parent.name} has ended, and with it all that it could have started.")
                spawned: Spawned = await self.nursery.start(self.run_agent, run)
        except (StartFailed, MailboxError) as exc:
            raise SpawnRefused(f"No agent was started: {exc}.") from exc
        return spawned

    async def stop(self, name: str) -> None:
        """Stop an agent below, as `Spawner.stop`."""
        below = self._below()
        if name not in below:
            raise SpawnRefused(f"You have no agent {name!r} at work that could be stopped: {did_you_mean(name, below)}")
        await below[name].stop(self.parent.name)

    async def request_shutdown(self, request: Envelope) -> None:
        """Forward a shutdown request, as `Spawner.request_shutdown`; only the lead may send one.

        The socket, not the message, tells who the sender is.
        """
        asker, name, below = self.parent.name, request.recipient.name, self._below()
        if asker != MAIN or name not in below:
            raise SpawnRefused(
                f"you have no agent {name!r} at work that you could ask to end: {did_you_mean(name, below)}"
            )
        sender = attrs.evolve(request.sender, name=asker, session=self.services.mail.session.id, kind="lead")
        below[name].request_shutdown(attrs.evolve(request, sender=sender))
        await trio.lowlevel.checkpoint()

    async def wait_until_idle(self) -> None:
        """Wait until all agents below are idle, as `Spawner.wait_until_idle`."""
        await wait_until_idle(self._settled_runs, self.services.mail.directory, self.changes)

    def has_busy(self) -> bool:
        """Return True if a child is busy."""
        return any(not child.is_idle for child in self._children())

    def has_teammate(self) -> bool:
        """Return True if a child is a teammate, also one of an earlier root that is still to be resumed."""
        is_kept = any(child.spec.is_teammate for child in self._children())
        return is_kept or any(each.request.stays for each in self.unfinished.of(self.parent.name))

    def expected_reports(self) -> tuple[Spawned, ...]:
        """Children that the agent had started before it crashed, and that have not reported."""
        busy = (child for child in self._children() if not child.is_idle and not child.spec.is_teammate)
        to_come = (each for each in self.unfinished.of(self.parent.name) if not each.is_done and not each.request.stays)
        return (
            *(child.process.spawned() for child in busy if child.process is not None),
            *(Spawned(name=each.name, incarnation=0, report=each.report) for each in to_come),
        )

    async def start_team(self) -> None:
        """Resume the children of an earlier root and spawn the new ones, once the agent can be their parent."""
        with self.parent.spawning(self.changes.notify):
            while not self.parent.is_ready:
                await self.changes.next()
            for left in self.unfinished.of(self.parent.name):
                await self._resume(left)
            await spawn_team(self.parent.team, self, self.parent.name, self.services.status, self.services.emit)

    async def _resume(self, left: UnfinishedAgent) -> None:
        """Run or keep an agent of an earlier root again; one that cannot be is reported as failed."""
        try:
            run = await self._resolve(left.request, left.name)
            spec = attrs.evolve(run.spec, report=left.report)
            outcome = await self._resumed_outcome(left) if left.is_done else None
            self.unfinished.mark_resumed(left.name)
            await self.nursery.start(self.run_agent, attrs.evolve(run, spec=spec, is_resumed=True, outcome=outcome))
        except (SpawnRefused, StartFailed, MailboxError) as exc:
            reason = f"{left.name} could not be taken up again: {exc}"
            self.services.emit(LayerFailed(layer="supervisor", reason=reason))
            if not left.is_done:
                await self.services.status.publish_failure(left.name, left.parent, left.report, str(exc))
            await self.unfinished.discard(left.name)

    async def _resumed_outcome(self, left: UnfinishedAgent) -> AgentOutcome:
        """Outcome of an agent whose task was done under an earlier root; it is marked idle on the roster."""
        roster = self.services.mail.roster
        await roster.set_state(left.name, "idle")
        incarnation = roster.members()[left.name].incarnation
        return AgentOutcome(name=left.name, incarnation=incarnation, end="done", status=0)

    async def _resolve(self, request: SpawnRequest, name: str) -> AgentRun:
        """Resolve *request* within the rights that the agent has now. Raises `SpawnRefused`.

        An agent that must plan passes on that it may only read. So does one whose plan a rule has approved, because the
        rule has not seen what the children would change.
        """
        spec = attrs.evolve(self.parent.spec, workspace=self.parent.workspace)
        is_approved = self.services.approvals.is_approved(spec.name)
        is_free = spec.plan is None or (spec.plan.by != "rule" and is_approved)
        parent = spec if is_free else read_only_spec(spec)
        return await trio.to_thread.run_sync(resolve_run, request, name, parent, self.services.mail.session.project)

    def _children(self) -> Sequence[AgentRun]:
        return [run for run in self.runs.values() if run.spec.parent == self.parent.name]

    def _below(self) -> dict[str, AgentRun]:
        return {run.name: run for run in descendants(self.runs, self.parent.name)}

    def _settled_runs(self) -> Sequence[AgentRun] | None:
        return None if self.parent.pending_spawns else descendants(self.runs, self.parent.name)
