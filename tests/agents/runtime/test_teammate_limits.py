"""Tools of a teammate in addition to those of its agent type, because it reports by mail."""

from pathlib import Path

import pytest

from coterie.agents.definitions.store import load_definitions
from coterie.agents.permissions.rules import RoleLimit
from coterie.agents.runtime.setup.agent_config import TEAM_TOOLS, effective_permissions
from coterie.agents.settings import Settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home directory without definitions."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))


def limit_of(kind: str, project: Path, *, is_teammate: bool) -> RoleLimit:
    [limit] = effective_permissions(Settings(), load_definitions(project).get(kind), is_teammate=is_teammate).limits
    return limit


@pytest.mark.parametrize("kind", ["explore", "plan", "verifier"])
def test_teammate_may_send_mail_and_use_tasks_with_every_agent_type(kind: str, tmp_path: Path) -> None:
    alone = limit_of(kind, tmp_path, is_teammate=False).allowed
    in_team = limit_of(kind, tmp_path, is_teammate=True).allowed
    assert alone is not None
    assert alone.isdisjoint(TEAM_TOOLS)
    assert in_team == alone | set(TEAM_TOOLS)


def test_tool_denied_by_the_definition_stays_denied(tmp_path: Path) -> None:
    kinds = tmp_path / ".coterie" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "mute.md").write_text("---\nname: mute\ndescription: d\ndisallowedTools: SendMessage\n---\nGo.\n")
    assert limit_of("mute", tmp_path, is_teammate=True).denied == {"SendMessage"}


def test_definition_that_denies_edit_denies_notebook_edit(tmp_path: Path) -> None:
    kinds = tmp_path / ".coterie" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "looks.md").write_text("---\nname: looks\ndescription: d\ndisallowedTools: Write, Edit\n---\nGo.\n")
    assert limit_of("looks", tmp_path, is_teammate=False).denied == {"Write", "Edit", "NotebookEdit"}


def test_coordinator_may_only_delegate(tmp_path: Path) -> None:
    allowed = limit_of("coordinator", tmp_path, is_teammate=False).allowed
    assert allowed == frozenset({"Agent", "TaskStop", "SearchTranscript", "ExitPlanMode", *TEAM_TOOLS})
