"""Derives the options, settings, team, definitions, limits and expectations of a scenario from a recorded session."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from coterie.agents.definitions.store import load_definitions
from coterie.agents.definitions.team_definition import TeamDefinition, TeamMember
from coterie.agents.events.agent_events import Finished, PermissionDecided, RunStarted, ToolStarted
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked
from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.views.session_client import exit_code_for
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.gateway.ledger import LedgerEntry
from coterie.orchestrator.session.overview import END_STATES
from coterie.paths import home_directory
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.recorded_actions import RecordedRun
from coterie.scenarios.recording.transcript_turns import AgentTurns
from coterie.session_directory import COORDINATOR, MAIN, SessionDirectory

_HELPERS: Mapping[str, Mapping[str, Any]] = {
    "notes": {"layers": {"notes": {"enabled": False}}},
    "compaction": {"layers": {"compaction": {"by_notes": False, "by_model": False}}},
    "extraction": {"layers": {"extraction": {"enabled": False}}},
    "dream": {"layers": {"dreaming": {"enabled": False}}},
    "recall": {"memory": {"recall": {"by": "local"}}},
    "summary": {"progress": {"enabled": False}},
}
"""Settings that disable the model calls for a purpose, such as `notes`, because their replies are not recorded."""
_SUBJECTS = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "NotebookEdit": "notebook_path",
}
USER = "user"


def recorded_options(
    session: SessionDirectory, events: Sequence[SessionEvent], team: TeamDefinition | None, remarks: list[str]
) -> dict[str, Any]:
    """Return the scenario keys for the `coterie run` options of the session; an unknown model is added to *remarks*."""
    found: dict[str, Any] = {}
    if team is None and session.agent == COORDINATOR:
        found["coordinator"] = True
    elif team is None and session.agent is not None:
        found["agent"] = session.agent
    if known_models().find(session.model) is None:
        remarks.append(f"the model {session.model} is not in the model table; a run uses the default model")
    else:
        found["model"] = session.model
    starts = [each.event for each in events if each.agent == MAIN and isinstance(each.event, RunStarted)]
    if starts and starts[0].permission_mode != "default":
        found["permission_mode"] = starts[0].permission_mode
    ends = [each.event for each in events if each.agent == MAIN and isinstance(each.event, Finished)]
    if ends and ends[-1].reason == "max_turns":
        found["max_turns"] = ends[-1].turns
    return found


def recorded_settings(
    events: Sequence[SessionEvent],
    agents: Mapping[str, AgentTurns],
    ledger: Iterable[LedgerEntry],
    placeholders: Placeholders,
) -> dict[str, Any]:
    """Return the `settings` of the scenario: effort, thinking, recorded permissions as rules, disabled helper calls."""
    found: dict[str, Any] = {}
    lead = agents.get(MAIN)
    if lead is not None and lead.header.get("effort"):
        found["effort"] = lead.header["effort"]
    if lead is not None and isinstance(thinking := lead.header.get("thinking"), dict):
        found["thinking"] = thinking.get("type") != "disabled"
    if rules := _rules(events, agents, placeholders):
        found["permissions"] = rules
    if any(
        isinstance(asked := each.event, ApprovalAsked)
        and (asked.what, asked.by) == ("plan", "human")
        and asked.name != MAIN
        for each in events
    ):
        # Team files set this for their members.
        found["approvals"] = {"plans": "human"}
    for purpose in sorted({line.purpose for line in ledger} & set(_HELPERS)):
        _lay_over(found, _HELPERS[purpose])
    return found


def team_table(team: TeamDefinition, placeholders: Placeholders) -> dict[str, Any]:
    """Return *team* in the format of a parsed team file, with its texts made independent of this machine."""
    table: dict[str, Any] = {"name": team.name}
    if team.coordinator:
        table["coordinator"] = True
    if team.lead is not None and (lead := _given({"agent": team.lead.agent, "model": team.lead.model})):
        table["lead"] = lead
    if team.members:
        table["members"] = [_member(member, placeholders) for member in team.members]
    if team.tasks:
        table["tasks"] = [
            _given(
                {
                    "id": task.key,
                    "subject": placeholders.mask_plain(task.subject),
                    "description": placeholders.mask_plain(task.description),
                    "owner": task.owner,
                    "blocked_by": list(task.blocked_by),
                }
            )
            for task in team.tasks
        ]
    return table


def recorded_definitions(project: Path, events: Iterable[SessionEvent]) -> dict[str, str]:
    """Return the texts of the user's definition files of all used agent types, by path relative to `COTERIE_HOME`."""
    used = {each.event.definition for each in events if isinstance(each.event, RunStarted)} - {None}
    known = load_definitions(project).by_name
    sources = {known[name].source for name in used if name is not None and name in known}
    files = sorted(path for path in sources if path is not None and path.is_relative_to(home_directory()))
    return {str(path.relative_to(home_directory())): path.read_text() for path in files}


def _member(member: TeamMember, placeholders: Placeholders) -> dict[str, Any]:
    plan: Any = None
    if member.plan is not None:
        by = member.plan.by
        plan = {"paths": list(member.plan.paths)} if by == "rule" else by or True
    options = {key: value for key, value in member.options.items() if key != "plan"}
    return _given(
        {
            "name": member.name,
            "type": member.type,
            "prompt": placeholders.mask_plain(member.prompt),
            "plan_required": plan,
            "worktree": member.worktree or None,
            **options,
            "budget_usd": None if member.budget_usd is None else float(member.budget_usd),
        }
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [])}


def _rules(
    events: Sequence[SessionEvent], agents: Mapping[str, AgentTurns], placeholders: Placeholders
) -> dict[str, list[str]]:
    """Return the permission rules (`allow`, `deny`) that decided calls, and one for each call that the user allowed."""
    found: dict[str, dict[str, None]] = {"allow": {}, "deny": {}}
    for number, observed in enumerate(events):
        event = observed.event
        if not isinstance(event, PermissionDecided) or event.verdict == "asked":
            continue
        if event.by == USER and event.verdict == "allowed":
            rule = _named(event.tool, observed.agent, events[number:], agents)
        else:
            rule = event.by if event.by.partition("(")[0] == event.tool else None
        if rule is not None:
            found["allow" if event.verdict == "allowed" else "deny"][placeholders.mask_plain(rule)] = None
    return {key: list(rules) for key, rules in found.items() if rules}


def _named(tool: str, agent: str, behind: Sequence[SessionEvent], agents: Mapping[str, AgentTurns]) -> str | None:
    """Return a permission rule for the next call of *tool* by *agent* in events *behind*: `Bash(make)` or `Bash`."""
    started = (each.event for each in behind if each.agent == agent)
    id_ = next((each.id for each in started if isinstance(each, ToolStarted) and each.name == tool), None)
    calls = (call for reply in agents[agent].replies for call in reply.calls) if agent in agents else ()
    call = next((call for call in calls if call["id"] == id_), None)
    subject = None if call is None else call["input"].get(_SUBJECTS.get(tool, ""))
    return tool if subject is None else f"{'Edit' if tool == 'Write' else tool}({subject})"


def _lay_over(table: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping):
            _lay_over(table.setdefault(key, {}), value)
        else:
            table[key] = value


LIMIT_SECONDS = (60, 600)
"""Minimum time limit for each run of a session, and maximum time limit of the recorded scenario, in seconds."""
_REPEATABLE = ("completed", "max_turns", "refused")
"""Reasons for the end of the lead (first agent) that a run of the scenario reproduces, so expectations check them."""


def recorded_limits(runs: Sequence[RecordedRun], ledger: Sequence[LedgerEntry], *, has_faults: bool) -> dict[str, Any]:
    """Return the `limits` of the scenario: twice the recorded time and cost, within bounds; with faults, only time."""
    took = sum(run.ended - run.began for run in runs if run.ended is not None)
    seconds = min(max(LIMIT_SECONDS[0] * len(runs), math.ceil(2 * took)), LIMIT_SECONDS[1])
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
    """Return the `expect` list: exit code, agent states, number of replies, files and mail, as the session had them."""
    found: list[dict[str, Any]] = []
    ends = [each.event for each in events if each.agent == MAIN and isinstance(each.event, Finished)]
    if ends and ends[-1].reason in _REPEATABLE:
        found += [
            {"exit_code": int(exit_code_for(ends[-1]))},
            {"event": {"kind": "finished", "agent": MAIN, "reason": ends[-1].reason}},
        ]
    else:
        why = f"{MAIN} ended with {ends[-1].reason}" if ends else f"{MAIN} did not finish"
        remarks.append(f"{why}, which a run may not repeat, so there is no expectation for the exit code")
    states = {event.name: event.state for each in events if isinstance(event := each.event, AgentChanged)}
    if ended := {name: state for name, state in states.items() if state in END_STATES}:
        found.append({"state": ended})
    found += [
        {"event": {"kind": "replied", "agent": name}, "times": agent_turns.count}
        for name, agent_turns in agents.items()
        if agent_turns.count
    ]
    found += [{"file": {"path": path, "equals": text}} for path, text in files.items()]
    found.append({"mail": {"exactly_once": True, **({"dead": dead} if dead else {})}})
    return [*found, {"strays": 0}]
