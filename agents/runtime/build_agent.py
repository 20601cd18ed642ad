"""Construction of an agent from its loaded parts: its tools, its conversation, and its runner.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs
import msgspec

from coterie.agents.layers.layer2_clearing import api_clearing
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds, window_of
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.forks.fork import begin_fork, write_fork_file
from coterie.agents.loop.model.catalog import Model, known_models
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.request import Identity
from coterie.agents.loop.pipeline import open_background
from coterie.agents.mcp.client import McpClient
from coterie.agents.mcp.mcp_tool import mcp_tools
from coterie.agents.prompts import render
from coterie.agents.root_link.root_connection import AgentHandlers
from coterie.agents.runtime.agent_runner import AgentRunner
from coterie.agents.runtime.plan_mode import PlanMode
from coterie.agents.runtime.setup.agent_files import agent_environment
from coterie.agents.runtime.setup.agent_parts import AgentParts
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN
from coterie.agents.runtime.setup.layer_setup import PipelineBuilder, load_layers
from coterie.agents.runtime.setup.sandbox_setup import open_sandbox
from coterie.agents.runtime.task_report import releasing_tasks
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.search.search_transcript import SearchTranscript
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.agents.tools.team.control_tools import ExitPlanMode, TaskStop
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import task_tools
from coterie.agents.tools.tool import JOBS_DIRECTORY, Tool, Workspace, tool_definition
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.agents.tools.web.web_fetch import PageCache, WebFetch
from coterie.agents.tools.workspace.background_jobs import BackgroundJobs, open_jobs
from coterie.mailbox.tasks.task import TaskOwner
from coterie.memory.store.change import Author

THINKING_BUDGET = 4_000
"""Maximum thinking tokens for each reply, sent to models whose `thinking` parameter requires such a number."""


def build_agent(
    parts: AgentParts, tools: dict[str, Tool], workspace: Workspace, client: ModelClient, layers: PipelineBuilder
) -> Agent:
    """Build the agent with the conversation of its transcript, else, for a fork, its parent's, or else a new one."""
    spec, files, point = parts.spec, parts.files, parts.point
    window = window_of(spec.settings.model, parts.model, spec.settings.layers.window.compact_window)
    meter = WindowMeter(Thresholds.for_window(window, parts.model.max_output))
    conversation = files.transcript.loaded.conversation
    is_fresh = conversation is None
    if conversation is None and point is not None:
        conversation = begin_fork(point, spec.task)
    elif conversation is None:
        conversation = begin_conversation(parts, tools, meter.thresholds)
    user_texts: list[str] = []
    if point is not None and is_fresh:
        point.restore_meter(meter)
        workspace.restore(point.workspace_state)
        user_texts = [*point.words, spec.task]
        files.transcript.record(conversation, UserTextRecord(texts=user_texts))
    return Agent(
        identity=Identity(agent=spec.name, incarnation=files.incarnation),
        model=parts.model,
        client=client,
        conversation=conversation,
        transcript=files.transcript,
        tools=tools,
        workspace=workspace,
        denial=parts.authority.denial,
        caller=parts.hooks.caller(parts.authority),
        meter=meter,
        build_pipeline=layers,
        clock=files.clock,
        emit=files.log.emit,
        durability=spec.settings.transcript.fsync,
        fork_of=None if point is None else point.parent,
        inherited=0 if point is None else len(point.prefix),
        user_texts=user_texts,
    )


def begin_conversation(parts: AgentParts, tools: Mapping[str, Tool], thresholds: Thresholds) -> Conversation:
    """Return a new conversation without messages, with the agent's request parameters, tools and system prompt.

    A setting enables cache edits (deletion of tool results in the prompt cache), which only the embedded server has.
    """
    settings, model, clearing = parts.spec.settings, parts.model, parts.spec.settings.layers.clearing
    header = KeyHeader(
        model=model.id, effort=model.effort_of(settings.effort), thinking=_thinking(settings.thinking, model)
    )
    if clearing.by_cache and parts.spec.is_embedded:
        header = attrs.evolve(header, betas=(known_models().betas["cache_edits"],))
    if clearing.by_api:
        header = api_clearing(header, model, thresholds, clearing, tools)
    system = [render("agent"), parts.memory.manual, "" if parts.definition is None else parts.definition.prompt]
    defined = [tool_definition(tool) for tool in tools.values()]
    return Conversation.begin(header, tools=defined, system=[text_block(text) for text in system if text])


def _thinking(is_enabled: bool | None, model: Model) -> bytes | None:
    if is_enabled is None or (model.thinking == "always"):
        return None
    shapes: Mapping[str, dict[str, object]] = {
        "adaptive": {"type": "adaptive"},
        "extended": {"type": "enabled", "budget_tokens": THINKING_BUDGET},
    }
    return msgspec.json.encode(shapes[model.thinking] if is_enabled else {"type": "disabled"})


def _build_workspace(
    parts: AgentParts, jobs: BackgroundJobs, sandbox: Sandbox | None, author: Callable[[], Author]
) -> Workspace:
    files = parts.files
    workspace = Workspace(
        root=parts.spec.directory,
        scratch=files.directory,
        jobs=jobs,
        environment=agent_environment(files),
        memory=parts.memory.writable(author),
        shared=files.session.scratch,
        readable=parts.skills.directories,
        sandbox=sandbox,
    )
    if parts.point is not None:
        workspace.skills.restore(parts.point.skills)
    for state in files.transcript.loaded.states:
        workspace.restore(state)
    return workspace


def build_web_tools(parts: AgentParts) -> tuple[Tool, ...]:
    """Return a tuple with the WebFetch tool, or an empty one. Raises `ConfigInvalid` for an invalid host.

    A new conversation gets the tool if the settings of the agent and of all agents above it list hosts. An existing one
    keeps the tool even if a list is empty now; every call is then refused.
    """
    # Imported here, because page_text imports an HTTP client that only agent processes need.
    from coterie.agents.tools.web.page_text import load_page  # noqa: PLC0415

    spec, begun = parts.spec, parts.begun_prefix
    hosts = tuple(hosts_from_settings(settings) for settings in (spec.settings, *spec.parent_settings))
    is_there = all(each.entries for each in hosts) if begun is None else begun.has_tool(WebFetch.name)
    return (WebFetch(hosts=hosts, cache=PageCache(parts.files.clock.now), load=load_page),) if is_there else ()


def build_agent_tool(
    parts: AgentParts, fork_point: Callable[[], Path], waiting: Callable[[], AbstractAsyncContextManager[None]]
) -> AgentTool:
    """Build the Agent tool, which starts sub-agents; it also expects reports of sub-agents started before a restart."""
    incarnation, unreported = parts.spec.incarnation, parts.unreported_children
    return AgentTool(
        parts.root.services,
        parts.mail.messaging,
        parts.agent_types,
        fork_point=fork_point,
        waiting=waiting,
        pending={spawned.report for spawned in unreported},
        # A child that has reported and still runs has been messaged again.
        has_teammate=incarnation.has_teammate or len(unreported) < len(incarnation.running_children),
    )


def build_all_tools(parts: AgentParts, agent_tool: AgentTool, mcp: McpClient) -> dict[str, Tool]:
    """Build all tools that the agent can run, by name, in the order of a new request. Raises `ConfigInvalid`.

    The requests of an existing conversation still contain the tool definitions with which it began.
    """
    root, mail = parts.root, parts.mail
    plan_mode = PlanMode(
        policy=parts.spec.plan,
        is_approved=parts.spec.incarnation.is_plan_approved,
        authority=parts.authority,
        approver=root.services,
        report_activity=root.report_activity,
    )
    tools: tuple[Tool, ...] = (
        *BUILT_IN,
        SearchTranscript(path=parts.files.transcript.path),
        SendMessage(router=mail.router, sender=mail.sender),
        *task_tools(parts.tasks, TaskOwner(name=mail.sender.name, incarnation=mail.sender.incarnation)),
        agent_tool,
        TaskStop(root.services),
        ExitPlanMode(plan_mode),
        *parts.skills.tools,
        *build_web_tools(parts),
    )
    own = parts.hooks.wrap_tools({tool.name: tool for tool in tools})
    return {**own, **mcp_tools(parts.mcp_tools.tools, mcp)}


@asynccontextmanager
async def open_agent_runner(parts: AgentParts, client: ModelClient, mcp: McpClient) -> AsyncIterator[AgentRunner]:
    """Build the agent from *parts*, start the background tasks of its pipeline, such as taking notes; yield its runner.

    Leaving the block kills the agent's shell commands in the background, and makes the tasks that it had claimed
    available to others. Raises `ConfigInvalid` and `OSError`.
    """
    spec, files, mail = parts.spec, parts.files, parts.mail
    agent: Agent

    # Only tools call these two functions, and no tool runs before the agent is built.
    def fork_point() -> Path:
        return write_fork_file(agent, files.directory)

    def author() -> Author:
        return parts.memory.author(agent)

    layers = await load_layers(parts)
    agent_tool = build_agent_tool(parts, fork_point, layers.waiting)
    tools = build_all_tools(parts, agent_tool, mcp)
    readable = [*parts.skills.directories, *(place.directory for place in parts.memory.places)]
    async with (
        releasing_tasks(parts.tasks, TaskOwner(name=spec.name, incarnation=mail.sender.incarnation), files.log.emit),
        open_sandbox(spec, files, readable) as sandbox,
        open_jobs(files.directory / JOBS_DIRECTORY) as jobs,
    ):
        agent = build_agent(parts, tools, _build_workspace(parts, jobs, sandbox, author), client, layers)
        steps = layers.steps
        async with open_background(steps):
            assert steps.on_demand_compaction is not None, "every agent has it"
            handlers = AgentHandlers(
                release=agent_tool.release, expect=agent_tool.pending.add, compact=steps.on_demand_compaction.request
            )
            with parts.root.handling(handlers):
                yield AgentRunner(
                    parts=parts, agent=agent, agent_tool=agent_tool, steps=steps, on_demand=steps.on_demand_compaction
                )
