"""An agent that is ready to work: what a run needs is put together around a client and the agent's mail.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
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
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.run_events import decided, finished, started
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.session import TASKS


@attrs.frozen(kw_only=True)
class Worker:
    """An agent that is ready to begin; nothing has been asked or told yet."""

    work: Work
    seat: Seat
    agent: Agent
    room: Mailroom
    _station: Station | None
    _instructions: Instructions | None

    async def run(self) -> Ended:
        """Let the agent work until its run has ended. Raises `ReplyMalformed`, `MailboxFailed` and `OSError`.

        While agents work for it in the background it waits for what they report, and goes on. Cancellation stops at
        once, and what was recorded stays; the event of the end says so.
        """
        return await self._report_on(self._run)

    async def live(self, *, lead: str | None) -> Ended:
        """Let the agent work, and then on whatever comes by mail, until it is asked to end; as `agents.living.live`.

        The *lead* is told each time it is idle. Otherwise as `run`.
        """
        membership = Membership(router=self.room.router, sender=self.room.sender, lead=lead)
        return await self._report_on(lambda limits: live(self.agent, self.room.mail, limits, membership, self._tell))

    async def _report_on(self, run: Callable[[Limits], Awaitable[Ended]]) -> Ended:
        """Do *run* between the events of its beginning and its end."""
        end, given = finished(Ended(reason="cancelled")), self.work.settings
        limits = Limits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.tell(started(self.work, self.seat, self.agent))
        try:
            self._take_up()
            ended = await run(limits)
            end = finished(ended)
        except (ReplyMalformed, OSError) as exc:
            end = msgspec.structs.replace(end, reason="failed", error=str(exc))
            raise
        finally:
            self.agent.tell(end)
        return ended

    async def _run(self, limits: Limits) -> Ended:
        if not has_work(self.agent):
            return Ended(reason="completed")  # woken by what was no message for it
        ended = await run_loop(self.agent, limits)
        while ended.reason == "completed" and (unheard := self._unheard()):
            await self._wait_for_mail(unheard)
            ended += await run_loop(self.agent, limits.without(ended))
        return ended

    def _tell(self, state: MemberState) -> None:
        if self._station is not None and state != "ended":
            self._station.tell(state)

    def _unheard(self) -> int:
        """How many agents work for this one in the background."""
        tool = self.agent.tools.get(AgentTool.name)
        return len(tool.pending - self.room.mail.reports) if isinstance(tool, AgentTool) else 0

    async def _wait_for_mail(self, unheard: int) -> None:
        assert self._station is not None, "only the root starts agents"
        self._station.tell("waiting", f"{unheard} agent{'s' if unheard > 1 else ''}")
        await self.room.mail.wait_for_work()
        self._station.tell("running")
        added = self.room.mail.add(self.agent, ())
        self.agent.say("user", added.blocks, *added.records)

    def _take_up(self) -> None:
        """Make the conversation end with something for the model to answer."""
        agent, work, instructions = self.agent, self.work, self._instructions
        if agent.fork_of is not None and has_work(agent) and not agent.conversation.open_tool_uses:
            return  # its directive, or what it was told since, is there
        close_open_calls(agent)
        if len(agent.conversation.messages) == 0:
            for note in () if instructions is None else instructions.notes:
                agent.tell(Noticed(source=note.source, reason=note.reason))
            context = context_text(work.project, agent.clock, instructions)
            agent.say("user", [text_block(context), text_block(work.task)])
        elif work.task or not has_work(agent):
            # What others wrote while nobody worked comes along.
            waiting = self.room.mail.add(agent, ())
            if blocks := [*waiting.blocks, *map(text_block, filter(None, [work.task]))]:
                agent.say("user", blocks, *waiting.records)


@asynccontextmanager
async def open_worker(
    work: Work,
    seat: Seat,
    room: Mailroom,
    client: ModelClient,
    *,
    asker: Asker | None = None,
    station: Station | None = None,
) -> AsyncIterator[Worker]:
    """The agent of *seat*, made for *work*, or as its transcript left it; it may start others if it has a *station*.

    Leaving the block ends what the agent left running, and gives its tasks back. Raises `ConfigInvalid` and `OSError`.
    """
    permissions = permissions_of(work.settings, work.kind)
    for settings in work.above:
        permissions = permissions.within(permissions_of(settings, None))
    instructions = await trio.to_thread.run_sync(instructions_of, work.project) if work.has_instructions else None
    point = None if work.fork is None else await trio.to_thread.run_sync(read_fork_file, work.fork)
    tasks = TaskList(seat.session.directory / TASKS, seat.clock)
    tools = tools_of(room, tasks)
    if station is not None:
        kinds = await trio.to_thread.run_sync(load_definitions, work.project)
        purposes = {name: kind.description for name, kind in kinds.by_name.items()}
        tools[AgentTool.name] = AgentTool(station.spawner, room.mail, purposes)
    async with (
        tasks_released(tasks, Owner(name=seat.name, incarnation=room.sender.incarnation), seat.log.tell),
        open_jobs(seat.directory / JOBS_DIRECTORY) as jobs,
    ):
        authority = Authority(permissions, asker, lambda decision: seat.log.tell(decided(decision)))
        agent = _agent(work, seat, room, client, tools, authority, jobs, point)
        if isinstance(tool := tools.get(AgentTool.name), AgentTool):
            tool.fork_point = partial(write_fork_file, agent, seat.directory)
        yield Worker(work=work, seat=seat, agent=agent, room=room, station=station, instructions=instructions)


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


def _begin(work: Work, tools: Mapping[str, Tool], point: ForkPoint | None) -> Conversation:
    if point is not None:
        return begin_fork(point, work.task)
    return begin_conversation(work.settings, work.model, work.kind, tools, is_embedded=work.is_embedded)


def _workspace(root: Path, seat: Seat, jobs: Jobs) -> Workspace:
    workspace = Workspace(root=root, scratch=seat.directory, jobs=jobs)
    for state in seat.transcript.loaded.states:
        workspace.restore(WorkspaceChange(seen=state.seen, directory=state.directory))
    return workspace
