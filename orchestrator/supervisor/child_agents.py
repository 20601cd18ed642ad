"""Child agents of one agent: start, stop and resume them, and wait until all are idle."""

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
"""Maximum depth of an agent below the lead (the first agent). An agent at this depth cannot start others."""


def choose_name(request: SpawnRequest, members: Mapping[str, Member], claimed: Collection[str]) -> str:
    """Return a free name for a new agent: the requested name, or the agent type with a number.

    Raises `SpawnRefused` if the requested name is invalid, reserved, or belongs to an agent that has not ended.
    """
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
        raise SpawnRefused(f"The agent {name} has not ended. Send it a message, or give the new agent another name.")
    return name


def resolve_run(request: SpawnRequest, name: str, parent: AgentSpec, project: Path) -> AgentRun:
    """Build the `AgentRun` of a new child *name* of *parent* from *request*, the agent type and the parent's settings.

    Blocks on the disk. Raises `SpawnRefused`.
    """
    if parent.depth >= MAX_DEPTH:
        raise SpawnRefused(
            f"No agent was started: you are {MAX_DEPTH} levels below the first agent, the limit. Do the task yourself."
        )
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
    """Build the `AgentRun` of a fork of *parent* (it starts with the parent's conversation), without agent type."""
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
"""Maximum seconds between two checks in `wait_until_idle`; mail for an agent arrives without a state change."""
RECEIVE_CHECKPOINTS = 5
"""Number of trio checkpoints in which the root receives the messages that are in the buffers of agents' sockets."""

DescendantRuns = Callable[[], Sequence[AgentRun] | None]
"""Function that returns the runs of all agents below one agent; None while another one is about to start."""


@attrs.define(eq=False)
class StateChanges:
    """Notification of the root's waiting tasks when the state of any agent changes."""

    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def notify(self) -> None:
        """Wake all tasks that wait in `next`."""
        self._waiting.unpark_all()

    async def next(self) -> None:
        """Wait until `notify` is called the next time."""
        await self._waiting.park()


async def wait_until_idle(below: DescendantRuns, mailboxes: Path, changes: StateChanges) -> None:
    """Return when all agents of *below* are idle, and no message in *mailboxes* would wake one of them."""
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
    """Return start number and number of received messages of each agent, to notice activity; None if one is busy."""
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
    """Start the agents of *requests* for the agent *lead*, one after the other.

    Agents without a task start first, so that the other agents can write to them immediately. If an agent cannot be
    started, an event is emitted and *lead* gets a message. Cancellation does not stop agents that are started.
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
    """Children of one agent during one task. Those in other processes survive its crash; all end with the task."""

    parent: AgentRun
    nursery: trio.Nursery
    """Nursery in which the children run."""
    services: RootServices
    runs: Mapping[str, AgentRun]
    """Runs of all agents of the session that have not ended, by name."""
    unfinished: UnfinishedAgents
    changes: StateChanges
    claim: Callable[[SpawnRequest], AbstractContextManager[str]]
    """Context manager that reserves and yields the name of a new agent. Raises `SpawnRefused` if it may not start."""
    run_agent: Callable[..., Awaitable[AgentOutcome]]
    """Runs the agent of an `AgentRun` until its end, as `Supervisor.run_agent`."""
    is_closed: bool = attrs.field(default=False, init=False)
    """True if new children are refused, because the task of the parent has ended."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Start a child, and return when it is running. Raises `SpawnRefused`."""
        try:
            with self.claim(request) as name:
                run = await self._resolve(request, name)
                # An earlier agent of that name may have open approvals, if it ended while no root was running.
                await self.services.approvals.close_for_agent(name)
                if self.is_closed:
                    raise SpawnRefused(f"No agent was started: its parent {self.parent.name} has ended. Do not retry.")
                spawned: Spawned = await self.nursery.start(self.run_agent, run)
        except (StartFailed, MailboxError) as exc:
            raise SpawnRefused(f"No agent was started: {exc}.") from exc
        return spawned

    async def stop(self, name: str) -> None:
        """Stop a child or a deeper descendant and wait for its end. Raises `SpawnRefused` if there is none."""
        below = self._below()
        if name not in below:
            raise SpawnRefused(f"You have no running agent {name!r} to stop: {did_you_mean(name, below)}")
        await below[name].stop(self.parent.name)

    async def request_shutdown(self, request: Envelope) -> None:
        """Send a shutdown request to a descendant. Raises `SpawnRefused`, also if the parent is not the lead.

        The sender in *request* is replaced by the parent, because the connection and not the message identifies the
        sender.
        """
        requester, name, below = self.parent.name, request.recipient.name, self._below()
        if requester != MAIN or name not in below:
            raise SpawnRefused(
                f"{name!r} was not shut down: only the first agent of the session can do this, and only with a running "
                f"agent below it; {did_you_mean(name, below)}"
            )
        sender = attrs.evolve(request.sender, name=requester, session=self.services.mail.session.id, kind="lead")
        below[name].request_shutdown(attrs.evolve(request, sender=sender))
        await trio.lowlevel.checkpoint()

    async def wait_until_idle(self) -> None:
        """Wait until all descendants are idle, none is being started by team or user, and no message would wake one."""

        def settled_runs() -> Sequence[AgentRun] | None:
            return None if self.parent.pending_spawns else descendants(self.runs, self.parent.name)

        await wait_until_idle(settled_runs, self.services.mail.directory, self.changes)

    def has_busy(self) -> bool:
        """Return True if a direct child is working."""
        return any(not child.is_idle for child in self._children())

    def has_teammate(self) -> bool:
        """Return True if a direct child is a teammate (it stays for messages), even one that is still to be resumed."""
        is_kept = any(child.spec.is_teammate for child in self._children())
        return is_kept or any(each.request.stays for each in self.unfinished.of(self.parent.name))

    def expected_reports(self) -> tuple[Spawned, ...]:
        """Return the non-teammate children that work or will be resumed, whose reports the parent must expect."""
        busy = (child for child in self._children() if not child.is_idle and not child.spec.is_teammate)
        to_come = (each for each in self.unfinished.of(self.parent.name) if not each.is_done and not each.request.stays)
        return (
            *(child.process.spawned() for child in busy if child.process is not None),
            *(Spawned(name=each.name, incarnation=0, report=each.report) for each in to_come),
        )

    async def start_team(self) -> None:
        """When the parent is ready, resume its children of an earlier root, then start the members of its team."""
        with self.parent.spawning(self.changes.notify):
            while not self.parent.is_ready:
                await self.changes.next()
            for agent in self.unfinished.of(self.parent.name):
                await self._resume(agent)
            await spawn_team(self.parent.team, self, self.parent.name, self.services.status, self.services.emit)

    async def _resume(self, agent: UnfinishedAgent) -> None:
        """Resume an agent that ran under an earlier root; if its task is done, it starts only when it gets a message.

        A failure is emitted as an event, reported to the parent unless the task is done, and the record is deleted.
        """
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
        """Build the `AgentRun` for *request* with at most the current rights of the parent. Raises `SpawnRefused`.

        If the parent needs an approved plan and has none, its children may only read. This also holds for a plan that a
        rule approved, because the rule has not checked the files that the children would change.
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
