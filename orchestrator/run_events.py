"""The events of a run that are made from facts of several sides: its beginning, its end, and what was decided."""

import attrs

from coterie.agents.agent import Agent
from coterie.agents.errors import ModelUnreachable
from coterie.agents.events import Decided, Finished, Started
from coterie.agents.outcome import Ended
from coterie.agents.permissions import Decision
from coterie.orchestrator.seat import Seat, Work


def started(work: Work, seat: Seat, agent: Agent) -> Started:
    """A run of *agent* begins."""
    return Started(
        session=seat.session.id,
        incarnation=seat.incarnation,
        model=work.model.id,
        permission_mode=work.settings.permissions.mode,
        project=str(work.project),
        tools=list(agent.tools),
        definition=None if work.kind is None else work.kind.name,
        sandbox=None if agent.workspace.sandbox is None else agent.workspace.sandbox.way,
        color=None if work.kind is None else work.kind.color,
    )


def decided(decision: Decision) -> Decided:
    """A call was not simply allowed."""
    return Decided(tool=decision.tool, verdict=decision.verdict, by=decision.by, reason=decision.reason)


def finished(ended: Ended) -> Finished:
    """A run has ended."""
    return Finished(
        reason=ended.reason,
        result=ended.text,
        turns=ended.turns,
        usage=attrs.asdict(ended.usage),
        cost_usd=format(ended.cost, "f"),
        error=None if ended.error is None else str(ended.error),
        is_unreachable=isinstance(ended.error, ModelUnreachable),
    )
