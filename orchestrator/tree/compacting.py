"""The user wants an agent compacted: its process is asked, and answers when that is done, or why it is not."""

from collections.abc import Mapping

from coterie.agents.compaction.plan import Pivot
from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.agents.errors import ControlLost
from coterie.orchestrator.tree.tenure import NotAtWork, Tenure

NO_PROCESS = "it has no process now; a message takes it up again"


async def compact_agent(tenures: Mapping[str, Tenure], name: str, pivot: Pivot | None) -> Compaction | NotCompacted:
    """Have the agent *name*, one of *tenures*, compact its conversation, and wait for that. Raises `NotAtWork`."""
    if name not in tenures:
        raise NotAtWork(name, tuple(tenures))
    charge = tenures[name].charge
    desk = None if charge is None else charge.desk
    if desk is None:
        return NotCompacted(call=0, reason=NO_PROCESS)
    try:
        return await desk.compactor.compact(pivot)
    except ControlLost:
        return NotCompacted(call=0, reason=NO_PROCESS)
