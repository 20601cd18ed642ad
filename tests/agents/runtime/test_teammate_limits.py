"""Tools of a teammate in addition to those of its agent type, because it reports by mail."""

from pathlib import Path

import pytest

from coterie.agents.definitions.store import load_definitions
from coterie.agents.permissions.rules import RoleLimit
from coterie.agents.runtime.setup.agent_permissions import TEAM_TOOLS, effective_permissions
from coterie.agents.settings import Settings

pytestmark = pytest.mark.usefixtures("home")


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


@pytest.mark.parametrize(
    ("disallowed", "denied"),
    [("SendMessage", {"SendMessage"}), ("Write, Edit", {"Write", "Edit", "NotebookEdit"})],
)
def test_tool_denied_by_the_definition_stays_denied(disallowed: str, denied: set[str], tmp_path: Path) -> None:
    """A definition that denies Edit also denies NotebookEdit."""
    definitions = tmp_path / ".coterie" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "a.md").write_text(f"---\nname: a\ndescription: d\ndisallowedTools: {disallowed}\n---\nGo.\n")
    assert limit_of("a", tmp_path, is_teammate=True).denied == denied


def test_coordinator_may_only_delegate(tmp_path: Path) -> None:
    allowed = limit_of("coordinator", tmp_path, is_teammate=False).allowed
    assert allowed == frozenset({"Agent", "TaskStop", "SearchTranscript", "ExitPlanMode", *TEAM_TOOLS})
