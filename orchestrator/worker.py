"""An agent that is ready to work: what a run needs is put together around a client and the agent's mail.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.agent import Agent
from coterie.agents.control.station import Station
from coterie.agents.conversation import Conversation, text_block
from coterie.agents.definitions import load_definitions
from coterie.agents.errors import ReplyMalformed
from coterie.agents.events import Noticed
from coterie.agents.forks import ForkPoint, begin_fork, fork_pipeline, fork_workspace
from coterie.agents.layers.mail import with_mail
from coterie.agents.lifecycle.membership import Membership
from coterie.agents.lifecycle.releasing import tasks_released
from coterie.agents.living import has_work, live
from coterie.agents.loop import close_open_calls, run_loop
from coterie.agents.model.client import ModelClient
from coterie.agents.model.request import Identity
from coterie.agents.outcome import Ended, Limits
from coterie.agents.permissions import Asker, Authority
from coterie.agents.pipeline import layered_pipeline
from coterie.agents.tools.agent import AgentTool
from coterie.agents.tools.jobs import Jobs, open_jobs
from coterie.agents.tools.tool import JOBS_DIRECTORY, Tool, Workspace, WorkspaceChange
from coterie.agents.window import WindowMeter
from coterie.mailbox.contract import MemberState
from coterie.mailbox.tasks import Owner, TaskList
from coterie.memory.instructions import Instructions
from coterie.orchestrator.assembly import (
    begin_conversation,
    context_text,
    instructions_of,
    layers_of,
    permissions_of,
    thresholds_of,
    tools_of,
)
from coterie.orchestrator.fork_files import read_fork_file, write_fork_file
from coterie.orchestrator.keeping_warm import PrefixKeeper, open_keeper
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.run_events import decided, finished, started
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.session import TASKS
from coterie.orchestrator.tree.remains import AGENT_VARIABLE, agent_tag

Report = Callable[[Ended], Awaitable[None]]
"""Stores what came of a run for whoever wants to know."""


@attrs.frozen(kw_only=True)
class Worker:
    """An agent that is ready to begin; nothing has been asked or told yet."""

    work: Work
    seat: Seat
    agent: Agent
    room: Mailroom
    _starting: AgentTool
    _keeper: PrefixKeeper
    _station: Station
    _instructions: Instructions | None

    async def run(self, report: Report) -> None:
        """Let the agent work until its run has ended, and *report* it before the event of the end is told.

        While agents work for it in the background it waits for what they report, and goes on. Cancellation stops at
        once, and what was recorded stays; the event of the end says so. Raises `ReplyMalformed`, `OSError`, and what
        *report* raises.
        """
        await self._between_events(self._run, report)

    async def live(self, report: Report, *, lead: str | None) -> None:
        """Let the agent work, and then on whatever comes by mail, until it is asked to end; as `agents.living.live`.

        The *lead* is told each time it is idle. Otherwise as `run`.
        """
        membership = Membership(router=self.room.router, sender=self.room.sender, lead=lead)
        await self._between_events(
            lambda limits: live(self.agent, self.room.mail, limits, membership, self._tell, self._waiting), report
        )

    async def _between_events(self, run: Callable[[Limits], Awaitable[Ended]], report: Report) -> None:
        end, given = finished(Ended(reason="cancelled")), self.work.settings
        limits = Limits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.tell(started(self.work, self.seat, self.agent))
        try:
            self._take_up()
            ended = await run(limits)
            # Whoever sees that it has finished can count on its report.
            await report(ended)
            end = finished(ended)
        except (ReplyMalformed, OSError) as exc:
            end = msgspec.structs.replace(end, reason="failed", error=_failure(exc))
            raise
        finally:
            self.agent.tell(end)

    async def _run(self, limits: Limits) -> Ended:
        if not has_work(self.agent):
            # Woken by what was no message for it, or ended by a crash when all was said.
            return Ended(reason="completed", text=_last_words(self.agent))
        ended = await run_loop(self.agent, limits)
        while ended.reason == "completed" and (unheard := self._unheard()):
            await self._wait_for_mail(unheard)
            ended += await run_loop(self.agent, limits.without(ended))
        return ended

    def _tell(self, state: MemberState) -> None:
        if state != "ended":
            self._station.tell(state)

    def _unheard(self) -> int:
        """How many agents work for this one in the background."""
        return len(self._starting.pending - self.room.mail.reports)

    def _waiting(self) -> AbstractAsyncContextManager[None]:
        """A wait for mail: while others work for the agent, it will go on with what it has."""
        return self._keeper.waiting() if self._unheard() else nullcontext()

    async def _wait_for_mail(self, unheard: int) -> None:
        self._station.tell("waiting", f"{unheard} agent{'s' if unheard > 1 else ''}")
        async with self._waiting():
            await self.room.mail.wait_for_work()
        self._station.tell("running")
        added = self.room.mail.add(self.agent, ())
        self.agent.say("user", added.blocks, *added.records)

    def _take_up(self) -> None:
        """Make the conversation end with something for the model to answer."""
        agent, work, instructions = self.agent, self.work, self._instructions
        if agent.fork_of is not None and work.task and has_work(agent) and not agent.conversation.open_tool_uses:
            return  # its directive, or what it was told since, is there
        close_open_calls(agent)
        if len(agent.conversation.messages) == 0:
            for note in () if instructions is None else instructions.notes:
                agent.tell(Noticed(source=note.source, reason=note.reason))
            context = context_text(work.project, agent.clock, instructions)
            agent.say("user", [text_block(context), text_block(work.task)])
        else:
            # What others wrote while nobody worked comes along: of its subagents, too, that ended with it in a crash.
            waiting = self.room.mail.add(agent, ())
            if blocks := [*waiting.blocks, *map(text_block, filter(None, [work.task]))]:
                agent.say("user", blocks, *waiting.records)


def _last_words(agent: Agent) -> str:
    """The text of the last reply."""
    role, blocks = agent.conversation.messages[-1]
    read = (msgspec.json.decode(block) for block in blocks if role == "assistant")
    return "".join(block["text"] for block in read if block["type"] == "text")


@asynccontextmanager
async def open_worker(
    work: Work,
    seat: Seat,
    room: Mailroom,
    client: ModelClient,
    station: Station,
    *,
    asker: Asker | None = None,
) -> AsyncIterator[Worker]:
    """The agent of *seat*, made for *work*, or as its transcript left it.

    Leaving the block ends what the agent left running, and gives its tasks back. Raises `ConfigInvalid` and `OSError`.
    """
    permissions = permissions_of(work.settings, work.kind)
    for settings in work.above:
        permissions = permissions.within(permissions_of(settings, None))
    instructions = await trio.to_thread.run_sync(instructions_of, work.project) if work.has_instructions else None
    point = None if work.fork is None else await trio.to_thread.run_sync(read_fork_file, work.fork)
    tasks = TaskList(seat.session.directory / TASKS, seat.clock)
    kinds = await trio.to_thread.run_sync(load_definitions, seat.session.project)
    purposes = {name: kind.description for name, kind in kinds.by_name.items()}
    starting = AgentTool(station.spawner, room.mail, purposes)
    tools = {**tools_of(room, tasks), starting.name: starting}
    async with (
        tasks_released(tasks, Owner(name=seat.name, incarnation=room.sender.incarnation), seat.log.tell),
        open_jobs(seat.directory / JOBS_DIRECTORY) as jobs,
    ):
        authority = Authority(permissions, asker, lambda decision: seat.log.tell(decided(decision)))
        agent = _agent(work, seat, room, client, tools, authority, jobs, point)
        async with open_keeper(agent) as keeper:
            starting.fork_point = partial(write_fork_file, agent, seat.directory)
            starting.waiting = keeper.waiting
            station.release = starting.release
            yield Worker(
                work=work,
                seat=seat,
                agent=agent,
                room=room,
                starting=starting,
                keeper=keeper,
                station=station,
                instructions=instructions,
            )


def _agent(
    work: Work,
    seat: Seat,
    room: Mailroom,
    client: ModelClient,
    tools: dict[str, Tool],
    authority: Authority,
    jobs: Jobs,
    point: ForkPoint | None,
) -> Agent:
    """The agent as its transcript left it, or else as its fork point or its work says."""
    workspace, meter = _workspace(work.project, seat, jobs), WindowMeter(thresholds_of(work.settings, work.model))
    conversation = seat.transcript.loaded.conversation
    is_fresh = conversation is None
    if conversation is None:
        conversation = _begin(work, tools, point)
    layers = layered_pipeline(layers_of(work.settings, conversation.header, tools), tools, seat.directory)
    pipeline = with_mail(layers, room.mail)
    if point is not None and is_fresh:
        point.fill(meter)
        fork_workspace(point, workspace)
        seat.transcript.record(conversation)
    return Agent(
        identity=Identity(agent=seat.name, incarnation=seat.incarnation),
        model=work.model,
        client=client,
        conversation=conversation,
        transcript=seat.transcript,
        tools=tools,
        workspace=workspace,
        denial=authority.denial,
        meter=meter,
        pipeline=pipeline if point is None else fork_pipeline(point, pipeline),
        clock=seat.clock,
        tell=seat.log.tell,
        durability=work.settings.transcript.fsync,
        fork_of=None if point is None else point.parent,
        inherited=0 if point is None else len(point.prefix),
    )


def _failure(error: ReplyMalformed | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)


def _begin(work: Work, tools: Mapping[str, Tool], point: ForkPoint | None) -> Conversation:
    if point is not None:
        return begin_fork(point, work.task)
    return begin_conversation(work.settings, work.model, work.kind, tools, is_embedded=work.is_embedded)


def _workspace(root: Path, seat: Seat, jobs: Jobs) -> Workspace:
    # What belongs to an agent is found by it, also where the agent shares its process with others.
    environment = {AGENT_VARIABLE: agent_tag(seat.name, seat.incarnation)}
    workspace = Workspace(root=root, scratch=seat.directory, jobs=jobs, environment=environment)
    for state in seat.transcript.loaded.states:
        workspace.restore(WorkspaceChange(seen=state.seen, directory=state.directory))
    return workspace
