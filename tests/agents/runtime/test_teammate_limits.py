"""What a teammate may do besides what its kind is for: without a way to write to others it could say nothing."""

from pathlib import Path

import pytest

from coterie.agents.definitions.store import load_definitions
from coterie.agents.permissions.rules import RoleLimit
from coterie.agents.runtime.setup.agent_config import TEAM_TOOLS, effective_permissions
from coterie.agents.settings import Settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without definitions."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))


def limit_of(kind: str, project: Path, *, is_teammate: bool) -> RoleLimit:
    [limit] = effective_permissions(Settings(), load_definitions(project).get(kind), is_teammate=is_teammate).limits
    return limit


@pytest.mark.parametrize("kind", ["explore", "plan", "verifier"])
def test_a_teammate_can_write_to_others_and_use_the_task_list_whatever_its_kind(kind: str, tmp_path: Path) -> None:
    alone = limit_of(kind, tmp_path, is_teammate=False).allowed
    in_team = limit_of(kind, tmp_path, is_teammate=True).allowed
    assert alone is not None
    assert alone.isdisjoint(TEAM_TOOLS)
    assert in_team == alone | set(TEAM_TOOLS)


def test_what_a_definition_takes_away_stays_away(tmp_path: Path) -> None:
    kinds = tmp_path / ".coterie" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "mute.md").write_text("---\nname: mute\ndescription: d\ndisallowedTools: SendMessage\n---\nGo.\n")
    assert limit_of("mute", tmp_path, is_teammate=True).denied == {"SendMessage"}


def test_who_may_not_edit_may_not_edit_notebooks_either(tmp_path: Path) -> None:
    kinds = tmp_path / ".coterie" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "looks.md").write_text("---\nname: looks\ndescription: d\ndisallowedTools: Write, Edit\n---\nGo.\n")
    assert limit_of("looks", tmp_path, is_teammate=False).denied == {"Write", "Edit", "NotebookEdit"}


def test_a_coordinator_may_delegate_and_nothing_else(tmp_path: Path) -> None:
    allowed = limit_of("coordinator", tmp_path, is_teammate=False).allowed
    assert allowed == frozenset({"Agent", "TaskStop", "SearchTranscript", "ExitPlanMode", *TEAM_TOOLS})
