"""Construction of an agent from its spec, its transcript or its fork point.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction, with_on_demand_compaction
from coterie.agents.layers.layer4_compaction.step import CompactionStep
from coterie.agents.layers.layer7_messaging import with_mail
from coterie.agents.layers.prompt_cache.keepalive import open_keepalive
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.forks.fork import begin_fork, fork_pipeline, fork_workspace
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.forks.fork_point_file import write_fork_file
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import build_pipeline
from coterie.agents.mcp.client import McpClient
from coterie.agents.mcp.mcp_tool import mcp_tools
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.plan_mode import PlanMode
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.runtime.agent_files import AgentFiles, AgentWork, agent_environment
from coterie.agents.runtime.agent_mail import AgentMail
from coterie.agents.runtime.agent_runner import AgentRunner, permission_decided_event
from coterie.agents.runtime.first_message import NextUserMessage
from coterie.agents.runtime.setup.agent_config import begin_conversation, build_tools, context_thresholds, layer_options
from coterie.agents.runtime.setup.hook_setup import AttachedHooks, load_agent_hooks
from coterie.agents.runtime.setup.layer_setup import (
    build_compaction,
    open_memory_layers,
    open_progress_summaries,
    open_session_notes,
    pinned_sections,
)
from coterie.agents.runtime.setup.memory_setup import AgentMemory
from coterie.agents.runtime.setup.resources import AgentResources, load_resources
from coterie.agents.runtime.setup.sandbox_setup import open_sandbox
from coterie.agents.runtime.task_release import releasing_tasks
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.shell.background_jobs import BackgroundJobs, open_jobs
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.agents.tools.team.control_tools import ExitPlanMode, TaskStop
from coterie.agents.tools.tool import JOBS_DIRECTORY, Tool, Workspace, WorkspaceChange
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.agents.tools.web.web_fetch import NAME, PageCache, WebFetch
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.session_directory import TASKS


@attrs.frozen(kw_only=True)
class AgentParts:
    """What an agent works with."""

    tools: dict[str, Tool]
    authority: Authorizer
    jobs: BackgroundJobs
    compact: CompactionStep | None
    """None where its context is not compacted."""
    point: ForkPoint | None
    """Where it was forked from, if it was."""
    memory: AgentMemory
    readable: tuple[Path, ...] = ()
    """Directories that it may read in besides its own."""
    sandbox: Sandbox | None = None
    """The wall around its commands; None for none."""


def build_agent(work: AgentWork, seat: AgentFiles, room: AgentMail, client: ModelClient, outfit: AgentParts) -> Agent:
    """The agent as its transcript left it, or else as its fork point or its work says."""
    tools, point = outfit.tools, outfit.point
    workspace, meter = (
        _workspace(work.project, seat, outfit),
        WindowMeter(context_thresholds(work.settings, work.model)),
    )
    conversation = seat.transcript.loaded.conversation
    is_fresh = conversation is None
    if conversation is None:
        conversation = _begin_conversation(work, outfit)
    layers = layer_options(work.settings, conversation.header, tools)
    pipeline = with_mail(build_pipeline(layers, tools, seat.directory, outfit.compact), room.messaging)
    words: list[str] = []
    if point is not None and is_fresh:
        point.restore_meter(meter)
        fork_workspace(point, workspace)
        words = [*point.words, work.task]
        seat.transcript.record(conversation, UserTextRecord(texts=words))
    agent = Agent(
        identity=Identity(agent=seat.name, incarnation=seat.incarnation),
        model=work.model,
        client=client,
        conversation=conversation,
        transcript=seat.transcript,
        tools=tools,
        workspace=workspace,
        denial=outfit.authority.denial,
        meter=meter,
        pipeline=pipeline if point is None else fork_pipeline(point, pipeline),
        clock=seat.clock,
        emit=seat.log.emit,
        durability=work.settings.transcript.fsync,
        fork_of=None if point is None else point.parent,
        inherited=0 if point is None else len(point.prefix),
        user_texts=words,
    )
    outfit.memory.agent = agent
    return agent


def _begin_conversation(work: AgentWork, outfit: AgentParts) -> Conversation:
    if outfit.point is not None:
        return begin_fork(outfit.point, work.task)
    return begin_conversation(
        work.settings, work.model, work.definition, outfit.tools, outfit.memory.manual, is_embedded=work.is_embedded
    )


def _workspace(root: Path, seat: AgentFiles, outfit: AgentParts) -> Workspace:
    workspace = Workspace(
        root=root,
        scratch=seat.directory,
        jobs=outfit.jobs,
        environment=agent_environment(seat),
        memory=outfit.memory.writable(),
        shared=seat.session.scratch,
        readable=outfit.readable,
        sandbox=outfit.sandbox,
    )
    if outfit.point is not None:
        workspace.skills.restore(outfit.point.skills)
    for state in seat.transcript.loaded.states:
        workspace.restore(WorkspaceChange(seen=state.seen, directory=state.directory, skills=state.skills))
    return workspace


def build_web_tools(work: AgentWork, seat: AgentFiles, begun: Prefix | None) -> tuple[Tool, ...]:
    """WebFetch, if the conversation that has *begun* has it; for a new one, if a host is listed.

    A list that has become empty since refuses every call: what stands in a request stays. Raises `ConfigInvalid`.
    """
    # Of all processes only an agent's needs it, and it takes a client of HTTP along.
    from coterie.agents.tools.web.page_text import load_page  # noqa: PLC0415

    hosts = tuple(hosts_from_settings(settings) for settings in (work.settings, *work.parent_settings))
    is_there = all(each.entries for each in hosts) if begun is None else _has_tool(begun)
    return (WebFetch(hosts=hosts, cache=PageCache(seat.clock.now), load=load_page),) if is_there else ()


def _has_tool(prefix: Prefix) -> bool:
    beginning = b'{"name":"%s"' % NAME.encode()
    return any(segment.data.startswith(beginning) for segment in prefix.segments if segment.section == "tools")


def build_agent_tool(work: AgentWork, found: AgentResources, room: AgentMail, station: RootConnection) -> AgentTool:
    """The tool that starts others for the agent; it expects the reports of those whom an earlier start has started."""
    return AgentTool(
        station.spawner,
        room.messaging,
        found.agent_types,
        pending={spawned.report for spawned in found.unreported_children},
        # Who has reported and is at work was written to again.
        has_teammate=work.has_teammate or len(found.unreported_children) < len(work.running_children),
    )


def build_agent_tools(
    work: AgentWork,
    seat: AgentFiles,
    found: AgentResources,
    starting: AgentTool,
    authority: Authorizer,
    station: RootConnection,
) -> dict[str, Tool]:
    """Those of the agent of *seat*, *starting* among them, in the order of a request. Raises `ConfigInvalid`.

    Which of them there are was settled when its conversation began.
    """
    planning = PlanMode(
        policy=work.plan,
        is_approved=work.is_approved,
        authority=authority,
        approver=station.approver,
        report_activity=station.report_activity,
    )
    tools: tuple[Tool, ...] = (
        starting,
        TaskStop(station.spawner),
        ExitPlanMode(planning),
        *found.skills.tools,
        *build_web_tools(work, seat, found.begun_prefix),
    )
    return {tool.name: tool for tool in tools}


@asynccontextmanager
async def open_agent_runner(
    work: AgentWork,
    seat: AgentFiles,
    room: AgentMail,
    client: ModelClient,
    station: RootConnection,
    caller: McpClient,
    *,
    asker: UserPrompter | None = None,
) -> AsyncIterator[AgentRunner]:
    """The agent of *seat*, made for *work*, or as its transcript left it.

    Leaving the block ends what the agent left running, and gives its tasks back. Raises `ConfigInvalid` and `OSError`.
    """
    found = await trio.to_thread.run_sync(load_resources, work, seat)
    tasks = TaskList(seat.session.directory / TASKS, seat.clock)
    authority = Authorizer(found.permissions, asker, lambda decision: seat.log.emit(permission_decided_event(decision)))
    starting = build_agent_tool(work, found, room, station)
    own = build_agent_tools(work, seat, found, starting, authority, station)
    hooks = await trio.to_thread.run_sync(load_agent_hooks, work, seat, authority)
    shared = hooks.wrap_tools(build_tools(room, tasks, seat.transcript.path))
    memory, skills = found.memory, found.skills
    async with (
        releasing_tasks(tasks, TaskOwner(name=seat.name, incarnation=room.sender.incarnation), seat.log.emit),
        open_sandbox(work, seat, [*skills.directories, *(place.directory for place in memory.places)]) as sandbox,
        open_jobs(seat.directory / JOBS_DIRECTORY) as jobs,
    ):
        standings = pinned_sections(seat, room, tasks)
        compact = build_compaction(work, seat, room, standings, memory, skills)
        outfit = AgentParts(
            tools={**shared, **own, **mcp_tools(found.listing.tools, caller)},
            authority=authority,
            jobs=jobs,
            compact=compact,
            point=found.point,
            memory=memory,
            readable=skills.directories,
            sandbox=sandbox,
        )
        agent = build_agent(work, seat, room, client, outfit)
        hooks.attach(agent, authority, room, compact)
        async with (
            open_keepalive(agent) as keeper,
            open_session_notes(agent, work, standings, compact) as notes,
            open_memory_layers(agent, work, memory, authority, compact) as kept,
            open_progress_summaries(agent, work, station.gate),
        ):
            starting.fork_point = partial(write_fork_file, agent, seat.directory)
            starting.waiting = keeper.waiting
            by_hand = _attach_on_demand_compaction(agent, compact, station)
            station.release, station.expect = starting.release, starting.pending.add
            yield AgentRunner(
                work=work,
                seat=seat,
                agent=agent,
                mail=room,
                starting=starting,
                keepalive=keeper,
                root=station,
                next_user_message=_next_user_message(work, seat, found, room, hooks, kept.recall),
                on_demand=by_hand,
                notes=notes,
                memory=kept,
                hooks=hooks,
            )


def _attach_on_demand_compaction(
    agent: Agent, compact: CompactionStep | None, station: RootConnection
) -> OnDemandCompaction:
    """Let *agent* be compacted whenever the root asks for it at *station*."""
    by_hand = OnDemandCompaction(compact, station.send)
    agent.pipeline = with_on_demand_compaction(agent.pipeline, by_hand)
    station.compact = by_hand.request
    return by_hand


def _next_user_message(
    work: AgentWork,
    seat: AgentFiles,
    found: AgentResources,
    room: AgentMail,
    hooks: AttachedHooks,
    recall: MemoryRecall | None,
) -> NextUserMessage:
    return NextUserMessage(
        work=work,
        instructions=found.instructions,
        memory=found.memory,
        skills=found.skills,
        servers=found.listing.to_text(),
        recall=recall,
        mail=room.messaging,
        hooks=hooks,
        scratch=seat.session.scratch if work.is_in_team else None,
        running_children=tuple(spawned.name for spawned in found.unreported_children),
    )
