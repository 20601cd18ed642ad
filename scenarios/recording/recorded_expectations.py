"""Limits and expectations derived from a recorded session."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.orchestrator.cli.views.session_client import exit_code_for
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.orchestrator.session.overview import END_STATES
from coterie.scenarios.recording.recorded_actions import RecordedRun
from coterie.scenarios.recording.transcript_turns import AgentTurns
from coterie.session_directory import MAIN

SECONDS = (60, 600)
"""Minimum and maximum time limit in seconds."""
_REPEATABLE = ("completed", "max_turns", "refused")
"""End reasons of the lead that a run reproduces."""


def recorded_limits(runs: Sequence[RecordedRun], ledger: Sequence[LedgerEntry], *, has_faults: bool) -> dict[str, Any]:
    """Return the limits of a run: a scripted model is faster than the session, but the machine may be slower."""
    took = sum(run.ended - run.began for run in runs if run.ended is not None)
    seconds = min(max(SECONDS[0] * len(runs), math.ceil(2 * took)), SECONDS[1])
    if has_faults:
        # A call pending at a kill may cost all that was reserved or nothing, so the total is not predictable.
        return {"seconds": seconds}
    # The embedded server counts tokens by bytes, and cache entries expire at other times.
    dollars = max(Decimal("0.10"), (2 * sum_costs(ledger).cost).quantize(Decimal("0.01"), rounding="ROUND_UP"))
    return {"seconds": seconds, "dollars": float(dollars)}


def recorded_expectations(
    events: Sequence[SessionEvent],
    agents: Mapping[str, AgentTurns],
    files: Mapping[str, str],
    dead: int,
    remarks: list[str],
) -> list[dict[str, Any]]:
    """Return expectations that hold after the session and must hold after a run."""
    found: list[dict[str, Any]] = []
    ends = [each.event for each in events if each.agent == MAIN and isinstance(each.event, Finished)]
    if ends and ends[-1].reason in _REPEATABLE:
        found += [
            {"exit_code": int(exit_code_for(ends[-1]))},
            {"event": {"kind": "finished", "agent": MAIN, "reason": ends[-1].reason}},
        ]
    else:
        why = f"{MAIN} ended by {ends[-1].reason}" if ends else f"{MAIN} has not finished"
        remarks.append(f"{why} for a reason that is not recorded, so there is no expectation for the exit code")
    if states := _states(events):
        found.append({"state": states})
    found += [
        {"event": {"kind": "replied", "agent": name}, "times": agent_turns.count}
        for name, agent_turns in agents.items()
        if agent_turns.count
    ]
    found += [{"file": {"path": path, "equals": text}} for path, text in files.items()]
    found.append({"mail": {"exactly_once": True, **({"dead": dead} if dead else {})}})
    return [*found, {"strays": 0}]


def _states(events: Sequence[SessionEvent]) -> dict[str, str]:
    """Return the last state of each agent that has ended."""
    changes = (each.event for each in events)
    states = {event.name: event.state for event in changes if isinstance(event, AgentChanged)}
    return {name: state for name, state in states.items() if state in END_STATES}
