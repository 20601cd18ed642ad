"""The session's gate: budgets, one cool-down, places by priority, and prompt caches that are written once.

The root makes one `SessionGate`; each agent's calls pass it through an asker of their own (`open_asker`), which is a
`Gate` like the local one. `choose_ttl` says how long a prefix that will be read again should live, and
`upkeep_of` for how long it is worth refresh calls when nobody knows when that will be.
"""

from coterie.orchestrator.gate.budgets import NOTHING, Amount, Earlier, Limits
from coterie.orchestrator.gate.permit import Asking, SessionPermit, Settled
from coterie.orchestrator.gate.session_gate import Asker, SessionGate
from coterie.orchestrator.gate.standing import AccountStanding, AgentStanding, Standing
from coterie.orchestrator.gate.ttl import TtlChoice, TtlPlan, Upkeep, choose_next_ttl, choose_ttl, upkeep_of

__all__ = [
    "NOTHING",
    "AccountStanding",
    "AgentStanding",
    "Amount",
    "Asker",
    "Asking",
    "Earlier",
    "Limits",
    "SessionGate",
    "SessionPermit",
    "Settled",
    "Standing",
    "TtlChoice",
    "TtlPlan",
    "Upkeep",
    "choose_next_ttl",
    "choose_ttl",
    "upkeep_of",
]
