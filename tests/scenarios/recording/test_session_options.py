"""Options, settings and the team, as far as a session has recorded them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from coterie.agents.definitions.team_definition import TeamDefinition, TeamLead, TeamMember, TeamTask
from coterie.agents.events.agent_events import PermissionDecided, RunStarted, ToolStarted
from coterie.agents.events.root_events import ApprovalAsked
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.orchestrator.teams.team_file import load_team
from coterie.scenarios.recording.session_options import (
    recorded_definitions,
    recorded_options,
    recorded_settings,
    team_table,
)
from coterie.scenarios.runner.environment import toml_text
from coterie.session_directory import SessionDirectory
from tests.scenarios.recording.session_samples import agent_turns, call, make_placeholders, reply_turn, session_event
from tests.scenarios.runner.scenario_samples import make_ledger_entry

BEGAN = RunStarted(session="s", incarnation=1, model="m", permission_mode="acceptEdits", project="/p", tools=[])


def session(**facts: Any) -> SessionDirectory:
    return SessionDirectory(id="s", project=Path("/p"), task="x", started=1.0, **{"model": "claude-opus-5-5", **facts})


def test_options_are_those_of_the_first_run() -> None:
    events = [session_event("main", 1, BEGAN), session_event("main", 9, BEGAN)]
    wanted = {"agent": "scout", "model": "claude-opus-5-5", "permission_mode": "acceptEdits"}
    assert recorded_options(session(agent="scout"), events, None, []) == wanted
    assert recorded_options(session(agent="coordinator"), events, None, [])["coordinator"] is True
    remarks: list[str] = []
    assert "model" not in recorded_options(session(model="own-model"), events, None, remarks)
    assert "own-model is not in the model table" in remarks[0]


def test_recorded_team_equals_the_team_of_the_session(tmp_path: Path) -> None:
    team = TeamDefinition(
        name="menders",
        lead=TeamLead(model="opus"),
        members=(
            TeamMember(name="scout", type="explore", prompt="Look."),
            TeamMember(name="mender", type="general-purpose", plan=PlanPolicy(by="human"), budget_usd=Decimal("0.5")),
            TeamMember(name="tester", type="verifier", plan=PlanPolicy(by="rule", paths=("tests/**",)), worktree=True),
            TeamMember(name="writer", type="general-purpose", plan=PlanPolicy(), memory="project", process="own"),
        ),
        tasks=(TeamTask(key="find", subject="Find it"), TeamTask(key="mend", subject="Mend it", blocked_by=("find",))),
    )
    (tmp_path / ".git").mkdir()
    path = tmp_path / "team.toml"
    path.write_text(toml_text(team_table(team, make_placeholders())))
    assert load_team(path, tmp_path) == team
    led = attrs.evolve(team, coordinator=True, lead=None, members=(), tasks=())
    path.write_text(toml_text(team_table(led, make_placeholders())))
    assert load_team(path, tmp_path) == led


def test_recorded_permission_decisions_become_rules() -> None:
    worker = agent_turns(
        "worker", reply_turn(1, 1, call("Bash", "b", command="make all"), call("Write", "w", file_path="/p/a.py"))
    )
    events = [
        session_event(
            "worker", 1, PermissionDecided(tool="Bash", verdict="allowed", by="Bash(git status:*)", reason="")
        ),
        session_event("worker", 2, PermissionDecided(tool="Bash", verdict="asked", by="mode", reason="")),
        session_event("worker", 3, PermissionDecided(tool="Bash", verdict="allowed", by="user", reason="")),
        session_event("worker", 4, ToolStarted(id="b", name="Bash")),
        session_event("worker", 5, PermissionDecided(tool="Write", verdict="allowed", by="user", reason="")),
        session_event("worker", 6, ToolStarted(id="w", name="Write")),
        session_event("worker", 7, PermissionDecided(tool="Bash", verdict="denied", by="Bash(rm:*)", reason="no")),
        session_event("worker", 8, PermissionDecided(tool="Bash", verdict="denied", by="default mode", reason="no")),
    ]
    rules = {"allow": ["Bash(git status:*)", "Bash(make all)", "Edit(a.py)"], "deny": ["Bash(rm:*)"]}
    assert recorded_settings(events, {"worker": worker}, [], make_placeholders()) == {"permissions": rules}


def test_helpers_are_disabled_in_recorded_settings() -> None:
    ledger = [
        make_ledger_entry("main", "0", purpose="turn"),
        make_ledger_entry("main", "0", purpose="notes"),
        make_ledger_entry("main", "0", purpose="extraction"),
        make_ledger_entry("main", "0", purpose="summary"),
    ]
    assert recorded_settings([], {}, ledger, make_placeholders()) == {
        "layers": {"extraction": {"enabled": False}, "notes": {"enabled": False}},
        "progress": {"enabled": False},
    }


def test_effort_thinking_and_plan_approvals_are_recorded() -> None:
    lead = agent_turns("main", reply_turn(1, 1))
    lead.header |= {"effort": "high", "thinking": {"type": "disabled"}}
    asked = ApprovalAsked(id="plan-1", what="plan", name="builder", incarnation=1, by="human", subject="Build.")
    found = recorded_settings([session_event("root", 1, asked)], {"main": lead}, [], make_placeholders())
    assert found == {"effort": "high", "thinking": False, "approvals": {"plans": "human"}}


def test_definitions_of_the_user_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    (tmp_path / "agents").mkdir()
    content = "---\nname: scout\ndescription: looks\n---\nLook.\n"
    (tmp_path / "agents/scout.md").write_text(content)
    (tmp_path / "agents/other.md").write_text(content.replace("scout", "other"))
    events = [session_event("scout", 1, msgspec.structs.replace(BEGAN, definition="scout"))]
    assert recorded_definitions(tmp_path, events) == {"agents/scout.md": content}
