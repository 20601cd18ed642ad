"""How the root starts processes: children that are forked from a warm process, or plain ones, behind one interface.

`open_warm_starter` and `PlainStarter` are the two ways (`Starter`); both take a `Start`, and give a `Child` that is
ready and dies with the root. What the root adopts meanwhile is reaped by `run_reaper`.
"""

from coterie.orchestrator.starting.child import Child
from coterie.orchestrator.starting.offspring import OURS, Offspring, run_reaper
from coterie.orchestrator.starting.plain import PlainStarter
from coterie.orchestrator.starting.starter import Start, Starter, StartFailed
from coterie.orchestrator.starting.warm import AGENT_WARMTH, WarmStarter, open_warm_starter

__all__ = [
    "AGENT_WARMTH",
    "OURS",
    "Child",
    "Offspring",
    "PlainStarter",
    "Start",
    "StartFailed",
    "Starter",
    "WarmStarter",
    "open_warm_starter",
    "run_reaper",
]
