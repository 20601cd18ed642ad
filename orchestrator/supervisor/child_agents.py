"""Child agents of one agent: resolving, spawning, stopping and resuming them, and waiting until all are idle."""

import itertools
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.root_link.spawn_request import Spawned, Spawner, SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace
from coterie.errors import ConfigInvalid
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Member
from coterie.mailbox.envelope import Envelope, new_message_id
from coterie.mailbox.errors import MailboxError, NameInvalid
from coterie.mailbox.transports.file.log_reader import needs_turn
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.settings.settings_loader import apply_definition
from coterie.orchestrator.supervisor.agent_run import AgentRun, descendants
from coterie.orchestrator.supervisor.agent_status import AgentOutcome, StatusPublisher
from coterie.orchestrator.supervisor.recovery import UnfinishedAgent, UnfinishedAgents
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.session_directory import MAIN
from coterie.suggestions import did_you_mean

MAX_DEPTH = 3
"""Maximum depth below the lead; an agent at this depth cannot spawn."""


def choose_name(request: SpawnRequest, members: Mapping[str, Member], claimed: Collection[str]) -> str:
    """Return a name that no running or starting agent has. Raises `SpawnRefused` for a requested name in use."""
    if request.name is None:
        stem = re.sub(r"[^a-z0-9]+", "-", request.definition.casefold()).strip("-")[:40] or "agent"
        names = (f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in members and name not in claimed)
    try:
        name = check_name(request.name)
    except NameInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    is_running = name in members and members[name].state != "ended"
    if name == MAIN or name in claimed or is_running:
        raise SpawnRefused(f"An agent {name} is already running; choose another name, or send a message to it.")
    return name


def resolve_run(request: SpawnRequest, name: str, parent: AgentSpec, project: Path) -> AgentRun:
    """Resolve *request* of *parent* to the run of an agent with *name*, kept for further messages.

    Blocks on the disk. Raises `SpawnRefused`.
    """
    if parent.depth >= MAX_DEPTH:
        raise SpawnRefused(f"An agent {MAX_DEPTH} levels below the lead cannot start another; do it yourself.")
    if request.fork is not None:
        return _fork_run(parent, request, name)
    try:
        settings, definition = apply_definition(attrs.evolve(parent.settings, agent=request.definition), project)
        model = known_models().get(request.model or (definition.model if definition else None) or parent.model)
    except ConfigInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    plan = request.plan
    if plan is not None and plan.by is None:
        plan = attrs.evolve(plan, by=settings.approvals.plans)
    spec = AgentSpec(
        name=name,
        task=request.task,
        model=model.id,
        settings=settings,
        parent=parent.name,
        parent_settings=(parent.settings, *parent.parent_settings),
        definition=request.definition,
        is_teammate=request.stays,
        plan=plan,
        memory=request.memory,
        is_bare=parent.is_bare,
        workspace=AgentWorkspace(directory=parent.workspace.directory),
    )
    return AgentRun(
        spec=spec,
        budget=request.budget_usd,
        isolation=request.isolation or (definition.isolation if definition else None),
        is_in_process=(request.process or (definition.process if definition else "own")) == "shared",
        is_kept=True,
        request=request,
    )


def _fork_run(parent: AgentSpec, request: SpawnRequest, name: str) -> AgentRun:
    """Return the run of a fork of *parent*: without its definition, because a fork of a coordinator works itself."""
    spec = attrs.evolve(
        parent,
        name=name,
        task=request.task,
        parent=parent.name,
        parent_settings=(parent.settings, *parent.parent_settings),
        report=new_message_id(),
        definition=None,
        fork=request.fork,
        is_teammate=False,
        plan=None,
        workspace=AgentWorkspace(directory=parent.workspace.directory),
    )
    return AgentRun(spec=spec, isolation=request.isolation, is_kept=True, request=request)


RECHECK_SECONDS = 1.0
"""Seconds until the next check without a state change, because mail can be taken without one."""
RECEIVE_CHECKPOINTS = 5
"""Checkpoints of the event loop in which messages in a socket's buffer are received."""

DescendantRuns = Callable[[], Sequence[AgentRun] | None]
"""Returns the runs of the agents below one agent; None while some are about to start."""


@attrs.define(eq=False)
class StateChanges:
    """Notification of agent state changes for waiting tasks of the root."""

    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def notify(self) -> None:
        """Wake all tasks that wait."""
        self._waiting.unpark_all()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._waiting.park()


async def wait_until_idle(below: DescendantRuns, mailboxes: Path, changes: StateChanges) -> None:
    """Return when all descendants *below* are idle, and none of the *mailboxes* has a message that would wake one."""
    while not await _is_idle(below, mailboxes):
        with trio.move_on_after(RECHECK_SECONDS):
            await changes.next()


async def _is_idle(below: DescendantRuns, mailboxes: Path) -> bool:
    counts = _message_counts(below())
    if counts is None:
        return False
    if await trio.to_thread.run_sync(lambda: any(needs_turn(mailboxes / name) for name in counts)):
        return False
    # An agent reports that it is busy before it takes its mail, so the report is in the socket's buffer by now.
    for _ in range(RECEIVE_CHECKPOINTS):
        await trio.lowlevel.checkpoint()
    return _message_counts(below()) == counts


def _message_counts(runs: Sequence[AgentRun] | None) -> Mapping[str, tuple[int, int]] | None:
    """Incarnation and number of messages of each agent; None if one of them is busy."""
    if runs is None or not all(run.is_idle for run in runs):
        return None
    processes = {run.name: run.process for run in runs}
    return {
        name: (process.spec.incarnation.number, process.message_count) if process else (0, 0)
        for name, process in processes.items()
    }


async def spawn_team(
    requests: Iterable[SpawnRequest],
    spawner: Spawner,
    lead: str,
    status: StatusPublisher,
    emit: Callable[[Event], None],
) -> None:
    """Spawn the agents of *requests* for the *lead*, one after the other.

    Agents without a task are spawned first, so that the others can write to them immediately. If an agent cannot be
    started, an event is emitted and the lead gets a message. Cancellation does not stop agents that are started.
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
    """Children of one agent during one task: they survive a crash of the agent, and end with the task."""

    parent: AgentRun
    nursery: trio.Nursery
    """Owner of the children's runs."""
    services: RootServices
    runs: Mapping[str, AgentRun]
    """All runs of the session, by name."""
    unfinished: UnfinishedAgents
    changes: StateChanges
    claim: Callable[[SpawnRequest], AbstractContextManager[str]]
    """Reserves the name of a new agent within a block. Raises `SpawnRefused`."""
    run_agent: Callable[..., Awaitable[AgentOutcome]]
    """Runs the agent of an `AgentRun`, as `Supervisor.run_agent`."""
    is_closed: bool = attrs.field(default=False, init=False)
    """True if further spawns are refused, because the agent has ended."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Spawn a child, as `Spawner.spawn`."""
        try:
            with self.claim(request) as name:
                run = await self._resolve(request, name)
                # An earlier agent of that name may have open approvals, if it ended while no root was running.
                await self.services.approvals.close_for_agent(name)
                if self.is_closed:
                    raise SpawnRefused(f"{self.parent.name} has ended and cannot start agents.")
                spawned: Spawned = await self.nursery.start(self.run_agent, run)
        except (StartFailed, MailboxError) as exc:
            raise SpawnRefused(f"No agent was started: {exc}.") from exc
        return spawned

    async def stop(self, name: str) -> None:
        """Stop a descendant, as `Spawner.stop`."""
        below = self._below()
        if name not in below:
            raise SpawnRefused(f"You have no running agent {name!r} to stop: {did_you_mean(name, below)}")
        await below[name].stop(self.parent.name)

    async def request_shutdown(self, request: Envelope) -> None:
        """Forward a shutdown request, as `Spawner.request_shutdown`; only the lead may send one.

        The connection, not the message, identifies the sender.
        """
        requester, name, below = self.parent.name, request.recipient.name, self._below()
        if requester != MAIN or name not in below:
            raise SpawnRefused(f"you have no running agent {name!r} to shut down: {did_you_mean(name, below)}")
        sender = attrs.evolve(request.sender, name=requester, session=self.services.mail.session.id, kind="lead")
        below[name].request_shutdown(attrs.evolve(request, sender=sender))
        await trio.lowlevel.checkpoint()

    async def wait_until_idle(self) -> None:
        """Wait until all descendants are idle, as `Spawner.wait_until_idle`."""

        def settled_runs() -> Sequence[AgentRun] | None:
            return None if self.parent.pending_spawns else descendants(self.runs, self.parent.name)

        await wait_until_idle(settled_runs, self.services.mail.directory, self.changes)

    def has_busy(self) -> bool:
        """Return True if a child is busy."""
        return any(not child.is_idle for child in self._children())

    def has_teammate(self) -> bool:
        """Return True if a child is a teammate. Children that ran before the session was resumed count too."""
        is_kept = any(child.spec.is_teammate for child in self._children())
        return is_kept or any(each.request.stays for each in self.unfinished.of(self.parent.name))

    def expected_reports(self) -> tuple[Spawned, ...]:
        """Return the children that the agent had started before a crash and that have not reported."""
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
            for agent in self.unfinished.of(self.parent.name):
                await self._resume(agent)
            await spawn_team(self.parent.team, self, self.parent.name, self.services.status, self.services.emit)

    async def _resume(self, agent: UnfinishedAgent) -> None:
        """Resume an agent of an earlier root, or keep it for messages; report a failure to its parent."""
        try:
            run = await self._resolve(agent.request, agent.name)
            spec = attrs.evolve(run.spec, report=agent.report)
            outcome: AgentOutcome | None = None
            if agent.is_done:
                roster = self.services.mail.roster
                await roster.set_state(agent.name, "idle")
                incarnation = roster.members()[agent.name].incarnation
                outcome = AgentOutcome(name=agent.name, incarnation=incarnation, end="done", status=0)
            self.unfinished.mark_resumed(agent.name)
            await self.nursery.start(self.run_agent, attrs.evolve(run, spec=spec, is_resumed=True, outcome=outcome))
        except (SpawnRefused, StartFailed, MailboxError) as exc:
            reason = f"{agent.name} could not be resumed: {exc}"
            self.services.emit(LayerFailed(layer="supervisor", reason=reason))
            if not agent.is_done:
                await self.services.status.publish_failure(agent.name, agent.parent, agent.report, str(exc))
            await self.unfinished.discard(agent.name)

    async def _resolve(self, request: SpawnRequest, name: str) -> AgentRun:
        """Resolve *request* within the current rights of the parent. Raises `SpawnRefused`.

        The children of an agent without an approved plan may only read. The same holds after approval by a rule,
        because the rule has not checked the files that the children would change.
        """
        spec = attrs.evolve(self.parent.spec, workspace=self.parent.workspace)
        is_approved = self.services.approvals.is_approved(spec.name)
        is_free = spec.plan is None or (spec.plan.by != "rule" and is_approved)
        if not is_free:
            permissions = attrs.evolve(spec.settings.permissions, mode="plan")
            spec = attrs.evolve(spec, settings=attrs.evolve(spec.settings, permissions=permissions))
        return await trio.to_thread.run_sync(resolve_run, request, name, spec, self.services.mail.session.project)

    def _children(self) -> Sequence[AgentRun]:
        return [run for run in self.runs.values() if run.spec.parent == self.parent.name]

    def _below(self) -> dict[str, AgentRun]:
        return {run.name: run for run in descendants(self.runs, self.parent.name)}
