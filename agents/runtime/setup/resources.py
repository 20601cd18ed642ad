"""Resources of an agent, loaded before it is built: permissions, instructions, memory, skills and MCP tools."""

from collections.abc import Mapping

import attrs

from coterie.agents.definitions.store import load_definitions
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.forks.fork_point_file import read_fork_file
from coterie.agents.mcp.tool_list_file import McpToolList, load_tool_list
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.root_link.spawn_request import Spawned
from coterie.agents.runtime.setup.agent_config import effective_permissions, server_limits
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork
from coterie.agents.runtime.setup.memory_setup import AgentMemory, open_agent_memory
from coterie.agents.runtime.setup.skill_setup import AgentSkills, open_agent_skills
from coterie.memory.instructions.loader import Instructions, read_instructions


@attrs.frozen(kw_only=True)
class AgentResources:
    """What one agent is provided with. Made by `load_resources`."""

    listing: McpToolList
    """The tools of MCP servers."""
    permissions: Permissions
    instructions: Instructions | None
    """None where instruction files are not read."""
    memory: AgentMemory
    point: ForkPoint | None
    """Where it was forked from, if it was."""
    begun_prefix: Prefix | None
    """What its conversation begins with; None if nothing has been said."""
    skills: AgentSkills
    agent_types: Mapping[str, str]
    """What each kind of agent that it can start is for, by name."""
    unreported_children: tuple[Spawned, ...]
    """Whom an earlier start of it has started, and whose reports have not come."""


def load_resources(work: AgentWork, seat: AgentFiles) -> AgentResources:
    """What there is for the agent of *seat* to do *work*. Blocks on the disk. Raises `ConfigInvalid` and `OSError`."""
    listing = load_tool_list(seat.session.directory) or McpToolList()
    permissions = _permissions(work, listing)
    instructions = read_instructions(work.project) if work.has_instructions else None
    memory = open_agent_memory(work, seat)
    point = None if work.fork is None else read_fork_file(work.fork)
    begun = _begun(seat, point)
    skills = open_agent_skills(work, seat, begun)
    kinds = load_definitions(seat.session.project).by_name
    return AgentResources(
        listing=listing,
        permissions=permissions,
        instructions=instructions,
        memory=memory,
        point=point,
        begun_prefix=begun,
        skills=skills,
        agent_types={name: kind.description for name, kind in kinds.items()},
        unreported_children=tuple(
            spawned for spawned in work.running_children if spawned.report not in seat.transcript.loaded.mail
        ),
    )


def _permissions(work: AgentWork, listing: McpToolList) -> Permissions:
    """What the agent may do: no more than its kind, and than those it was started by."""
    permissions = effective_permissions(work.settings, work.definition, is_teammate=work.is_teammate)
    limits = (*permissions.limits, *server_limits(work.definition, listing.tools))
    permissions = attrs.evolve(permissions, limits=limits)
    for settings in work.parent_settings:
        permissions = permissions.within(effective_permissions(settings, None))
    return permissions


def _begun(seat: AgentFiles, point: ForkPoint | None) -> Prefix | None:
    if (conversation := seat.transcript.loaded.conversation) is not None:
        return conversation.prefix
    return None if point is None else point.prefix
