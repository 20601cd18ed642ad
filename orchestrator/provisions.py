"""What there is for an agent before it is made: what it may do, what it is told, what it remembers and can."""

from collections.abc import Mapping

import attrs

from coterie.agents.conversation import Prefix
from coterie.agents.definitions import load_definitions
from coterie.agents.forks import ForkPoint
from coterie.agents.mcp.listing import Listing, load_listing
from coterie.agents.permissions import Permissions
from coterie.agents.spawning import Spawned
from coterie.memory.instructions import Instructions
from coterie.orchestrator.agent_memory import AgentMemory, memory_of
from coterie.orchestrator.agent_skills import AgentSkills, skills_of
from coterie.orchestrator.assembly import permissions_of
from coterie.orchestrator.first_context import instructions_of
from coterie.orchestrator.fork_files import read_fork_file
from coterie.orchestrator.mcp.limiting import server_limits
from coterie.orchestrator.seat import Seat, Work


@attrs.frozen(kw_only=True)
class Provisions:
    """What one agent is provided with. Made by `provisions_of`."""

    listing: Listing
    """The tools of MCP servers."""
    permissions: Permissions
    instructions: Instructions | None
    """None where instruction files are not read."""
    memory: AgentMemory
    point: ForkPoint | None
    """Where it was forked from, if it was."""
    begun: Prefix | None
    """What its conversation begins with; None if nothing has been said."""
    skills: AgentSkills
    kinds: Mapping[str, str]
    """What each kind of agent that it can start is for, by name."""
    unheard: tuple[Spawned, ...]
    """Whom an earlier start of it has started, and whose reports have not come."""


def provisions_of(work: Work, seat: Seat) -> Provisions:
    """What there is for the agent of *seat* to do *work*. Blocks on the disk. Raises `ConfigInvalid` and `OSError`."""
    listing = load_listing(seat.session.directory) or Listing()
    permissions = _permissions(work, listing)
    instructions = instructions_of(work.project) if work.has_instructions else None
    memory = memory_of(work, seat)
    point = None if work.fork is None else read_fork_file(work.fork)
    begun = _begun(seat, point)
    skills = skills_of(work, seat, begun)
    kinds = load_definitions(seat.session.project).by_name
    return Provisions(
        listing=listing,
        permissions=permissions,
        instructions=instructions,
        memory=memory,
        point=point,
        begun=begun,
        skills=skills,
        kinds={name: kind.description for name, kind in kinds.items()},
        unheard=tuple(spawned for spawned in work.at_work if spawned.report not in seat.transcript.loaded.mail),
    )


def _permissions(work: Work, listing: Listing) -> Permissions:
    """What the agent may do: no more than its kind, and than those it was started by."""
    permissions = permissions_of(work.settings, work.kind, is_teammate=work.stays)
    limits = (*permissions.limits, *server_limits(work.kind, listing.tools))
    permissions = attrs.evolve(permissions, limits=limits)
    for settings in work.above:
        permissions = permissions.within(permissions_of(settings, None))
    return permissions


def _begun(seat: Seat, point: ForkPoint | None) -> Prefix | None:
    if (conversation := seat.transcript.loaded.conversation) is not None:
        return conversation.prefix
    return None if point is None else point.prefix
