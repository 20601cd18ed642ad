"""Parts of an agent: everything that is loaded or opened for one incarnation, before its tools are built."""

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
    """Everything that one agent is built from. Created by `load_agent_parts`."""

    spec: AgentSpec
    files: AgentFiles
    mail: AgentMail
    root: RootConnection
    tasks: TaskList
    """Task list of the session."""
    model: Model
    definition: AgentDefinition | None
    """Definition of the agent's type; None for an agent without one."""
    agent_types: Mapping[str, str]
    """Descriptions of the agent types that the agent can start, by name."""
    team: TeamDefinition | None
    """Team that the agent leads from the start; None if it leads none."""
    teammates: tuple[str, ...]
    """Names of the other members of the team that the agent belongs to from the start."""
    unreported_children: tuple[Spawned, ...]
    """Children that an earlier incarnation spawned, and whose reports are not in the transcript."""
    mcp_tools: McpToolList
    """Tools of the MCP servers of the session."""
    authority: Authorizer
    instructions: Instructions | None
    """Instruction files; None if they are not read."""
    memory: AgentMemory
    skills: AgentSkills
    hooks: AgentHooks
    point: ForkPoint | None
    """Fork point that the agent begins with; None if it is no fork."""
    begun_prefix: Prefix | None
    """Prefix that the agent's conversation begins with; None for a new conversation."""

    @property
    def leads_team(self) -> bool:
        """True if other agents work for the agent from the start, so that it waits until they are idle."""
        return self.team is not None or self.spec.definition == COORDINATOR

    @property
    def scratch(self) -> Path | None:
        """Directory that the agent shares with others; None for an agent without a parent or a team."""
        return self.files.session.scratch if self.spec.parent_settings or self.leads_team else None


def load_agent_parts(spec: AgentSpec, files: AgentFiles, mail: AgentMail, root: RootConnection) -> AgentParts:
    """Load the parts of the agent of *spec*. Blocks on the disk. Raises `ConfigInvalid` and `OSError`."""
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
    """Return the permissions of the agent, which never exceed those of its type and of its ancestors."""
    permissions = effective_permissions(spec.settings, definition, is_teammate=spec.is_teammate)
    limits = (*permissions.limits, *server_limits(definition, mcp_tools.tools))
    permissions = attrs.evolve(permissions, limits=limits)
    for settings in spec.parent_settings:
        permissions = permissions.within(effective_permissions(settings, None))
    return permissions
