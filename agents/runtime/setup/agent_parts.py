"""Parts of an agent: everything that is loaded or opened at its start, before its tools and its loop are built."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions
from coterie.agents.definitions.team_definition import TeamDefinition, load_recorded_team
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.forks.fork import read_fork_file
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.model.catalog import Model, known_models
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.agents.runtime.setup.agent_permissions import effective_permissions, server_limits
from coterie.agents.runtime.setup.hook_setup import AgentHooks, load_agent_hooks
from coterie.agents.runtime.setup.memory_setup import AgentMemory, open_agent_memory
from coterie.agents.runtime.setup.skill_setup import AgentSkills, open_agent_skills
from coterie.mailbox.tasks.task_list import TaskList
from coterie.memory.instructions.loader import Instructions, read_instructions
from coterie.session_directory import COORDINATOR, MAIN, TASKS


@attrs.frozen(kw_only=True)
class AgentParts:
    """Everything from which one agent is built: start parameters, files, mail, model, permissions, memory, skills."""

    spec: AgentSpec
    files: AgentFiles
    mail: AgentMail
    root: RootConnection
    tasks: TaskList
    """Task list that all agents of the session share."""
    model: Model
    definition: AgentDefinition | None
    """Agent definition: tools, permissions and prompt of the agent's type; None for an agent without a type."""
    agent_types: Mapping[str, str]
    """Descriptions of the agent types that the agent can start, by name of the type."""
    team: TeamDefinition | None
    """Team that the agent leads since the start of the session; None for an agent that leads no such team."""
    teammates: tuple[str, ...]
    """Names of the other members, if the agent is a member of the team of the session; else empty."""
    unreported_children: tuple[Spawned, ...]
    """Children that the agent started before it was restarted, and whose reports it has not received yet."""
    mcp_tools: McpToolList
    """Tools of all MCP servers of the session; empty without servers."""
    authority: Authorizer
    instructions: Instructions | None
    """Content of the instruction files of the user and the project; None if the agent does not read them."""
    memory: AgentMemory
    skills: AgentSkills
    hooks: AgentHooks
    point: ForkPoint | None
    """Conversation and state of the parent, with which a fork begins; None if the agent is no fork."""
    begun_prefix: Prefix | None
    """Existing conversation of the agent, from its transcript or its parent; None for a new conversation."""

    @property
    def leads_team(self) -> bool:
        """True if the agent leads a team or has the type `coordinator`, so that it waits for all its sub-agents."""
        return self.team is not None or self.spec.definition == COORDINATOR

    @property
    def scratch(self) -> Path | None:
        """Directory that the agents of the session share; None for a lead that has no team and is not a coordinator."""
        return self.files.session.scratch if self.spec.parent_settings or self.leads_team else None


def load_agent_parts(spec: AgentSpec, files: AgentFiles, mail: AgentMail, root: RootConnection) -> AgentParts:
    """Load everything from which the agent of *spec* is built. Blocks. Raises `ConfigInvalid` and `OSError`."""
    session = files.session
    definitions = load_definitions(session.project)
    definition = None if spec.definition is None else definitions.get(spec.definition)
    if definition is not None and spec.memory is not None:
        definition = attrs.evolve(definition, memory=spec.memory)
    model = known_models().get(spec.model)
    # Only leads and teammates need the file; a subagent starts faster without reading it.
    team = load_recorded_team(session) if spec.parent is None or spec.is_teammate else None
    members = [] if team is None or spec.parent != MAIN else [member.name for member in team.members]
    mcp_tools = load_tool_list(session.directory) or McpToolList()
    permissions = _permissions(spec, definition, mcp_tools)
    authority = Authorizer(permissions, root.asker if spec.services.can_prompt else None, files.log.emit)
    point = None if spec.fork is None else read_fork_file(Path(spec.fork))
    conversation = files.transcript.loaded.conversation
    begin = point if conversation is None else conversation
    begun = None if begin is None else begin.prefix
    reported = files.transcript.loaded.mail
    return AgentParts(
        spec=spec,
        files=files,
        mail=mail,
        root=root,
        tasks=TaskList(session.directory / TASKS, files.clock),
        model=model,
        definition=definition,
        agent_types={name: each.description for name, each in definitions.by_name.items()},
        team=team if spec.parent is None else None,
        teammates=tuple(name for name in members if name != spec.name) if spec.name in members else (),
        unreported_children=tuple(
            spawned for spawned in spec.incarnation.running_children if spawned.report not in reported
        ),
        mcp_tools=mcp_tools,
        authority=authority,
        instructions=read_instructions(spec.directory) if spec.has_instructions else None,
        memory=open_agent_memory(spec, files, definition),
        skills=open_agent_skills(spec, files, definition, model, begun),
        hooks=load_agent_hooks(spec, files, definition, authority),
        point=point,
        begun_prefix=begun,
    )


def _permissions(spec: AgentSpec, definition: AgentDefinition | None, mcp_tools: McpToolList) -> Permissions:
    """Return the agent's permissions by its settings and definition; its ancestors' settings must allow a call too."""
    permissions = effective_permissions(spec.settings, definition, is_teammate=spec.is_teammate)
    limits = (*permissions.limits, *server_limits(definition, mcp_tools.tools))
    permissions = attrs.evolve(permissions, limits=limits)
    for settings in spec.parent_settings:
        permissions = permissions.within(effective_permissions(settings, None))
    return permissions
