"""Options, settings and the team, as far as a session has recorded them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.events import ApprovalAsked, Decided, Started, ToolStarted
from coterie.agents.usage import Usage
from coterie.orchestrator.ledger import LedgerLine
from coterie.orchestrator.session import Session
from coterie.orchestrator.teams.reading import read_team
from coterie.orchestrator.teams.team import Lead, Team, TeamMember, TeamTask
from coterie.scenarios.recording.circumstances import definitions, options, settings, team_table
from coterie.scenarios.recording.places import Places
from coterie.scenarios.runner.toml_text import toml_text
from tests.scenarios.recording.voicing import call, said, told, voice

BEGAN = Started(session="s", incarnation=1, model="m", permission_mode="acceptEdits", project="/p", tools=[])


def places() -> Places:
    return Places(project=Path("/p"), session=Path("/s"), home=Path("/h"))


def session(**facts: Any) -> Session:
    return Session(id="s", project=Path("/p"), task="x", started=1.0, **{"model": "claude-opus-5-5", **facts})


def test_options_are_those_of_the_first_run() -> None:
    events = [told("main", 1, BEGAN), told("main", 9, BEGAN)]
    wanted = {"agent": "scout", "model": "claude-opus-5-5", "permission_mode": "acceptEdits"}
    assert options(session(agent="scout"), events, None, []) == wanted
    assert options(session(agent="coordinator"), events, None, [])["coordinator"] is True
    doubts: list[str] = []
    assert "model" not in options(session(model="own-model"), events, None, doubts)
    assert "own-model is not in the table" in doubts[0]


def test_a_team_is_read_again_as_the_team_that_it_was(tmp_path: Path) -> None:
    team = Team(
        name="menders",
        lead=Lead(model="opus"),
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
    path.write_text(toml_text(team_table(team, places())))
    assert read_team(path, tmp_path) == team
    led = attrs.evolve(team, coordinator=True, lead=None, members=(), tasks=())
    path.write_text(toml_text(team_table(led, places())))
    assert read_team(path, tmp_path) == led


def test_rules_that_decided_and_what_the_user_allowed_are_rules_of_the_play() -> None:
    worker = voice("worker", said(1, 1, call("Bash", "b", command="make all"), call("Write", "w", file_path="/p/a.py")))
    events = [
        told("worker", 1, Decided(tool="Bash", verdict="allowed", by="Bash(git status:*)", reason="")),
        told("worker", 2, Decided(tool="Bash", verdict="asked", by="mode", reason="")),
        told("worker", 3, Decided(tool="Bash", verdict="allowed", by="user", reason="")),
        told("worker", 4, ToolStarted(id="b", name="Bash")),
        told("worker", 5, Decided(tool="Write", verdict="allowed", by="user", reason="")),
        told("worker", 6, ToolStarted(id="w", name="Write")),
        told("worker", 7, Decided(tool="Bash", verdict="denied", by="Bash(rm:*)", reason="no")),
        told("worker", 8, Decided(tool="Bash", verdict="denied", by="default mode", reason="no")),
    ]
    rules = {"allow": ["Bash(git status:*)", "Bash(make all)", "Edit(a.py)"], "deny": ["Bash(rm:*)"]}
    assert settings(events, {"worker": worker}, [], places()) == {"permissions": rules}


def line(purpose: str) -> LedgerLine:
    return LedgerLine(
        at=1.0,
        agent="main",
        incarnation=1,
        parent=None,
        purpose=purpose,
        model="m",
        usage=Usage(),
        cost_usd=Decimal(0),
        prefix="",
    )


def test_helpers_that_had_a_model_have_none_in_a_play() -> None:
    ledger = [line("turn"), line("notes"), line("extraction"), line("summary")]
    assert settings([], {}, ledger, places()) == {
        "layers": {"extraction": {"enabled": False}, "notes": {"enabled": False}},
        "progress": {"enabled": False},
    }


def test_effort_thinking_and_who_approves_plans_are_kept() -> None:
    lead = voice("main", said(1, 1))
    lead.header |= {"effort": "high", "thinking": {"type": "disabled"}}
    asked = ApprovalAsked(id="plan-1", what="plan", name="builder", incarnation=1, by="human", subject="Build.")
    found = settings([told("root", 1, asked)], {"main": lead}, [], places())
    assert found == {"effort": "high", "thinking": False, "approvals": {"plans": "human"}}


def test_the_users_own_kinds_of_agents_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    (tmp_path / "agents").mkdir()
    content = "---\nname: scout\ndescription: looks\n---\nLook.\n"
    (tmp_path / "agents/scout.md").write_text(content)
    (tmp_path / "agents/other.md").write_text(content.replace("scout", "other"))
    events = [told("scout", 1, msgspec.structs.replace(BEGAN, definition="scout"))]
    assert definitions(tmp_path, events) == {"agents/scout.md": content}
