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
"""The least and the most that a play may take."""
_REPEATABLE = ("completed", "max_turns", "refused")
"""How a run ends for reasons that are in the recording."""


def recorded_limits(runs: Sequence[RecordedRun], ledger: Sequence[LedgerEntry], *, has_faults: bool) -> dict[str, Any]:
    """What a play may take: with a scripted model less than the session took, on a slow machine more."""
    took = sum(run.ended - run.began for run in runs if run.ended is not None)
    seconds = min(max(SECONDS[0] * len(runs), math.ceil(2 * took)), SECONDS[1])
    if has_faults:
        # What was asked for when a process was killed counts with all that was reserved, or not: that is a race.
        return {"seconds": seconds}
    # The embedded server counts tokens by bytes, and caches expire otherwise.
    dollars = max(Decimal("0.10"), (2 * sum_costs(ledger).cost).quantize(Decimal("0.01"), rounding="ROUND_UP"))
    return {"seconds": seconds, "dollars": float(dollars)}


def recorded_expectations(
    events: Sequence[SessionEvent],
    voices: Mapping[str, AgentTurns],
    files: Mapping[str, str],
    dead: int,
    doubts: list[str],
) -> list[dict[str, Any]]:
    """What must be so after a play, too."""
    found: list[dict[str, Any]] = []
    ends = [each.event for each in events if each.agent == MAIN and isinstance(each.event, Finished)]
    if ends and ends[-1].reason in _REPEATABLE:
        found += [
            {"exit_code": int(exit_code_for(ends[-1]))},
            {"event": {"kind": "finished", "agent": MAIN, "reason": ends[-1].reason}},
        ]
    else:
        why = f"{MAIN} ended by {ends[-1].reason}" if ends else f"{MAIN} has not finished"
        doubts.append(f"{why}: what made it end is not recorded, so nothing is expected of the exit code")
    if states := _states(events):
        found.append({"state": states})
    found += [
        {"event": {"kind": "replied", "agent": name}, "times": voice.count}
        for name, voice in voices.items()
        if voice.count
    ]
    found += [{"file": {"path": path, "equals": text}} for path, text in files.items()]
    found.append({"mail": {"exactly_once": True, **({"dead": dead} if dead else {})}})
    return [*found, {"strays": 0}]


def _states(events: Sequence[SessionEvent]) -> dict[str, str]:
    """The last state of each agent that has ended."""
    changes = (each.event for each in events)
    states = {event.name: event.state for event in changes if isinstance(event, AgentChanged)}
    return {name: state for name, state in states.items() if state in END_STATES}
