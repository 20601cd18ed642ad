"""The tools that are made for one agent: those that reach the root of its session, its skills, and the web."""

from coterie.agents.approvals.planning import Planning
from coterie.agents.control.station import Station
from coterie.agents.permissions import Authority
from coterie.agents.tools.agent import AgentTool
from coterie.agents.tools.exit_plan_mode import ExitPlanMode
from coterie.agents.tools.task_stop import TaskStop
from coterie.agents.tools.tool import Tool
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.provisions import Provisions
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.web import web_tools


def starting_tool(work: Work, found: Provisions, room: Mailroom, station: Station) -> AgentTool:
    """The tool that starts others for the agent; it expects the reports of those whom an earlier start has started."""
    return AgentTool(
        station.spawner,
        room.mail,
        found.kinds,
        pending={spawned.report for spawned in found.unheard},
        # Who has reported and is at work was written to again.
        has_teammate=work.has_teammate or len(found.unheard) < len(work.at_work),
    )


def own_tools(
    work: Work, seat: Seat, found: Provisions, starting: AgentTool, authority: Authority, station: Station
) -> dict[str, Tool]:
    """Those of the agent of *seat*, *starting* among them, in the order of a request. Raises `ConfigInvalid`.

    Which of them there are was settled when its conversation began.
    """
    planning = Planning(
        policy=work.plan,
        is_approved=work.is_approved,
        authority=authority,
        judge=station.approver,
        tell=station.tell,
    )
    tools: tuple[Tool, ...] = (
        starting,
        TaskStop(station.spawner),
        ExitPlanMode(planning),
        *found.skills.tools,
        *web_tools(work, seat, found.begun),
    )
    return {tool.name: tool for tool in tools}
