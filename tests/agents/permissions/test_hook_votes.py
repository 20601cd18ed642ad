"""Effect of a hook's vote on a permission."""

from pathlib import Path

import attrs
import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt, Vote
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Workspace

ALLOW, ASK = Vote(wants="allow"), Vote(wants="ask", reason="sure?")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, scratch=tmp_path / "scratch")


def rule(text: str) -> tuple[Rule, ...]:
    return (Rule.parse(text, "test"),)


def test_allow_vote_skips_the_prompt_of_the_mode(workspace: Workspace) -> None:
    call = BashInput(command="make")
    for mode in ("default", "acceptEdits"):
        permissions = Permissions(mode=mode)
        assert isinstance(permissions.evaluate(Bash(), call, workspace), NeedsPrompt)
        assert permissions.evaluate(Bash(), call, workspace, vote=ALLOW) == Allowed(by="hook")


@pytest.mark.parametrize(
    "permissions",
    [
        Permissions(deny=rule("Bash(make:*)")),
        Permissions(mode="plan"),
        Permissions(mode="dontAsk"),
        Permissions(limits=(RoleLimit(name="x", reason="no", denied=frozenset({"Bash"})),)),
        Permissions().within(Permissions(deny=rule("Bash"))),
        Permissions(mode="bypassPermissions").within(Permissions(mode="plan")),
    ],
)
def test_allow_vote_does_not_override_a_denial(permissions: Permissions, workspace: Workspace) -> None:
    assert isinstance(permissions.evaluate(Bash(), BashInput(command="make"), workspace, vote=ALLOW), Denied)


@pytest.mark.parametrize(
    "permissions",
    [Permissions(ask=rule("Bash(make:*)")), Permissions().within(Permissions(ask=rule("Bash(make:*)")))],
)
def test_ask_rule_prompts_despite_an_allow_vote(permissions: Permissions, workspace: Workspace) -> None:
    assert isinstance(permissions.evaluate(Bash(), BashInput(command="make"), workspace, vote=ALLOW), NeedsPrompt)


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_ask_vote_prompts_in_every_mode(mode: Mode, workspace: Workspace) -> None:
    permissions = Permissions(mode=mode, allow=rule("Bash"))
    verdict = permissions.evaluate(Bash(), BashInput(command="make"), workspace, permissions.allow, vote=ASK)
    assert isinstance(verdict, NeedsPrompt)
    assert (verdict.by, verdict.question.reason, verdict.question.rules) == ("hook", "a hook asks for it: sure?", ())
    assert isinstance(
        attrs.evolve(permissions, mode="dontAsk").evaluate(Bash(), BashInput(command="make"), workspace, vote=ASK),
        Denied,
    )
