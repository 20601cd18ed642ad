"""Construction of an agent from its spec, its transcript or its fork point.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.forks.fork import begin_fork, fork_workspace
from coterie.agents.loop.forks.fork_point_file import write_fork_file
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import Steps, open_background
from coterie.agents.mcp.client import McpClient
from coterie.agents.mcp.mcp_tool import mcp_tools
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.runtime.agent_runner import AgentRunner, permission_decided_event
from coterie.agents.runtime.first_message import NextUserMessage
from coterie.agents.runtime.plan_mode import PlanMode
from coterie.agents.runtime.setup.agent_config import begin_conversation, build_tools, context_thresholds
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork, agent_environment
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.agents.runtime.setup.hook_setup import AgentHooks, load_agent_hooks
from coterie.agents.runtime.setup.layer_setup import AgentParts, PipelineBuilder, load_notes_writer, pinned_sections
from coterie.agents.runtime.setup.resources import AgentResources, load_resources
from coterie.agents.runtime.setup.sandbox_setup import open_sandbox
from coterie.agents.runtime.task_release import releasing_tasks
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.agents.tools.team.control_tools import ExitPlanMode, TaskStop
from coterie.agents.tools.tool import JOBS_DIRECTORY, Tool, Workspace, WorkspaceChange
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.agents.tools.web.web_fetch import NAME, PageCache, WebFetch
from coterie.agents.tools.workspace.background_jobs import open_jobs
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.session_directory import TASKS


def build_agent(
    work: AgentWork, seat: AgentFiles, client: ModelClient, parts: AgentParts, builder: PipelineBuilder
) -> Agent:
    """The agent as its transcript left it, or else as its fork point or its work says."""
    point = parts.point
    workspace = _workspace(work.project, seat, parts)
    meter = WindowMeter(context_thresholds(work.settings, work.model))
    conversation = seat.transcript.loaded.conversation
    is_fresh = conversation is None
    if conversation is None:
        conversation = _begin_conversation(work, parts)
    user_texts: list[str] = []
    if point is not None and is_fresh:
        point.restore_meter(meter)
        fork_workspace(point, workspace)
        user_texts = [*point.words, work.task]
        seat.transcript.record(conversation, UserTextRecord(texts=user_texts))
    return Agent(
        identity=Identity(agent=seat.name, incarnation=seat.incarnation),
        model=work.model,
        client=client,
        conversation=conversation,
        transcript=seat.transcript,
        tools=parts.tools,
        workspace=workspace,
        denial=parts.authority.denial,
        caller=parts.hooks.caller(parts.authority),
        meter=meter,
        build_pipeline=builder,
        clock=seat.clock,
        emit=seat.log.emit,
        durability=work.settings.transcript.fsync,
        fork_of=None if point is None else point.parent,
        inherited=0 if point is None else len(point.prefix),
        user_texts=user_texts,
    )


def _begin_conversation(work: AgentWork, parts: AgentParts) -> Conversation:
    if parts.point is not None:
        return begin_fork(parts.point, work.task)
    return begin_conversation(
        work.settings, work.model, work.definition, parts.tools, parts.memory.manual, is_embedded=work.is_embedded
    )


def _workspace(root: Path, seat: AgentFiles, parts: AgentParts) -> Workspace:
    workspace = Workspace(
        root=root,
        scratch=seat.directory,
        jobs=parts.jobs,
        environment=agent_environment(seat),
        memory=parts.memory.writable(),
        shared=seat.session.scratch,
        readable=parts.skills.directories,
        sandbox=parts.sandbox,
    )
    if parts.point is not None:
        workspace.skills.restore(parts.point.skills)
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
    pinned = pinned_sections(seat, room, tasks)
    async with (
        releasing_tasks(tasks, TaskOwner(name=seat.name, incarnation=room.sender.incarnation), seat.log.emit),
        open_sandbox(work, seat, [*skills.directories, *(place.directory for place in memory.places)]) as sandbox,
        open_jobs(seat.directory / JOBS_DIRECTORY) as jobs,
    ):
        parts = AgentParts(
            tools={**shared, **own, **mcp_tools(found.listing.tools, caller)},
            authority=authority,
            jobs=jobs,
            point=found.point,
            memory=memory,
            skills=skills,
            hooks=hooks,
            pinned_sections=pinned,
            notes_writer=await trio.to_thread.run_sync(load_notes_writer, work, seat, pinned),
            sandbox=sandbox,
        )
        builder = PipelineBuilder(work=work, files=seat, mail=room, root=station, parts=parts)
        agent = build_agent(work, seat, client, parts, builder)
        memory.agent = agent
        steps = builder.steps
        async with open_background(steps):
            starting.fork_point = partial(write_fork_file, agent, seat.directory)
            _connect(starting, station, steps)
            yield AgentRunner(
                work=work,
                seat=seat,
                agent=agent,
                mail=room,
                starting=starting,
                root=station,
                next_user_message=_next_user_message(work, seat, found, room, hooks, steps.recall),
                steps=steps,
                hooks=hooks,
            )


def _connect(starting: AgentTool, station: RootConnection, steps: Steps) -> None:
    """Let the agent tool wait with *steps*, and the root reach the agent tool and on-demand compaction."""
    assert steps.keepalive is not None
    assert steps.on_demand_compaction is not None
    starting.waiting = steps.keepalive.waiting
    station.compact = steps.on_demand_compaction.request
    station.release, station.expect = starting.release, starting.pending.add


def _next_user_message(
    work: AgentWork,
    seat: AgentFiles,
    found: AgentResources,
    room: AgentMail,
    hooks: AgentHooks,
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
