"""Rules for starting agents, by agent type."""

from pathlib import Path

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import Denied, Verdict
from coterie.agents.tools.team.agent_tool import AgentInput, AgentTool
from coterie.agents.tools.tool import Workspace
from coterie.errors import ConfigInvalid


def _judge(kind: str, directory: Path, permissions: Permissions) -> Verdict:
    # The tool never runs: permissions only look at the call.
    tool = AgentTool(spawner=None, mail=None, agent_types={})  # type: ignore[arg-type]
    given = AgentInput(description="look", prompt="Look.", subagent_type=kind)
    return permissions.evaluate(tool, given, Workspace(root=directory, scratch=directory))


@pytest.mark.parametrize(
    ("rule", "kind", "is_meant"),
    [
        ("Agent", "tester", True),
        ("Agent(*)", "tester", True),
        ("Agent(tester)", "tester", True),
        ("Agent(reviewer, tester)", "tester", True),
        ("Agent(reviewer)", "tester", False),
        ("Agent(test)", "tester", False),
        ("Read", "tester", False),
    ],
)
def test_rule_matches_the_agent_types_it_names(tmp_path: Path, rule: str, kind: str, *, is_meant: bool) -> None:
    verdict = _judge(kind, tmp_path, Permissions(deny=(Rule.parse(rule, "test"),)))
    assert isinstance(verdict, Denied) is is_meant


def test_definition_that_names_agent_types_starts_no_others(tmp_path: Path) -> None:
    limit = RoleLimit(
        name="lead", reason="no", allowed=frozenset({"Agent"}), only=(Rule.parse("Agent(reviewer, tester)", "test"),)
    )
    judged = {kind: _judge(kind, tmp_path, Permissions(limits=(limit,))) for kind in ("tester", "deployer")}
    assert not isinstance(judged["tester"], Denied)
    assert isinstance(judged["deployer"], Denied)


def test_rule_with_an_empty_agent_type_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"names of agent types.*Agent\(reviewer\)"):
        Rule.parse("Agent(reviewer,,tester)", "settings.toml")
