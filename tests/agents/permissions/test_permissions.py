"""Modes, role limits, precedence of rules, and inherited permissions."""

from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import MODES, Allowed, Denied, Mode, NeedsPrompt, Verdict, Vote
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import Tool, Workspace

Kind = Literal["read", "read outside", "edit", "edit outside", "edit protected", "run"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CALLS: dict[Kind, tuple[Tool, Any]] = {
    "read": (Read(), ReadInput(file_path="a.py")),
    "read outside": (Read(), ReadInput(file_path="/etc/hosts")),
    "edit": (Write(), WriteInput(file_path="src/a.py", content="x")),
    "edit outside": (Write(), WriteInput(file_path="/etc/hosts", content="x")),
    "edit protected": (Write(), WriteInput(file_path=".git/config", content="x")),
    "run": (Bash(), BashInput(command="ls -l")),
}
STRICTNESS = (Allowed, NeedsPrompt, Denied)


def _rules(*texts: str) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text, "test") for text in texts)


def _judge(permissions: Permissions, kind: Kind, workspace: Workspace, granted: tuple[Rule, ...] = ()) -> Verdict:
    return permissions.evaluate(*CALLS[kind], workspace, granted)


A, P, D = Allowed, NeedsPrompt, Denied


@pytest.mark.parametrize(
    ("mode", "allow", "expected"),
    [
        ("default", (), (A, P, P, P, D, P)),
        ("acceptEdits", (), (A, P, A, P, D, P)),
        ("plan", (), (A, P, D, D, D, D)),
        ("dontAsk", (), (A, D, D, D, D, D)),
        ("bypassPermissions", (), (A, A, A, A, A, A)),
        ("default", ("*",), (A, A, A, A, D, A)),
        ("acceptEdits", ("*",), (A, A, A, A, D, A)),
        ("plan", ("*",), (A, A, D, D, D, D)),
        ("dontAsk", ("*",), (A, A, A, A, D, A)),
        ("bypassPermissions", ("*",), (A, A, A, A, A, A)),
    ],
)
def test_a_mode_without_rules_and_with_everything_allowed(
    mode: Mode, allow: tuple[str, ...], expected: tuple[type[Verdict], ...], workspace: Workspace
) -> None:
    permissions = Permissions(mode=mode, allow=_rules(*allow))
    assert tuple(type(_judge(permissions, kind, workspace)) for kind in KINDS) == expected


@pytest.mark.parametrize("mode", MODES)
def test_deny_wins_over_everything(mode: Mode, workspace: Workspace) -> None:
    permissions = Permissions(mode=mode, allow=_rules("*"), ask=_rules("*"), deny=_rules("*"))
    for kind in KINDS:
        verdict = _judge(permissions, kind, workspace, _rules("*"))
        assert isinstance(verdict, Denied)
        assert verdict.by == "*"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("default", NeedsPrompt), ("acceptEdits", NeedsPrompt), ("dontAsk", Denied), ("bypassPermissions", Allowed)],
)
def test_ask_wins_over_allow_and_mode_but_not_over_bypass(
    mode: Mode, expected: type[Verdict], workspace: Workspace
) -> None:
    permissions = Permissions(mode=mode, allow=_rules("*"), ask=_rules("Read(*.py)", "Bash(ls:*)", "Edit(src/**)"))
    kinds: tuple[Kind, ...] = ("read", "edit", "run")
    for kind in kinds:
        assert isinstance(_judge(permissions, kind, workspace), expected)


@pytest.mark.parametrize(
    ("limit", "denied"),
    [
        (RoleLimit(name="coordinator", reason="delegate it", allowed=frozenset({"Read"})), {"edit", "run"}),
        (RoleLimit(name="helper", reason="no edits", denied=frozenset({"Write"})), {"edit"}),
        (RoleLimit(name="nothing", reason="none"), set()),
        (RoleLimit(name="all", reason="none", denied=frozenset({"*"})), {"read", "edit", "run"}),
        (RoleLimit(name="lists", reason="only ls", only=(Rule.parse("Bash(ls:*)", "test"),)), set()),
        (RoleLimit(name="counts", reason="only wc", only=(Rule.parse("Bash(wc:*)", "test"),)), {"run"}),
    ],
)
def test_a_role_limit_comes_first_in_every_mode(limit: RoleLimit, denied: set[Kind], workspace: Workspace) -> None:
    permissions = Permissions(mode="bypassPermissions", limits=(limit,))
    kinds: tuple[Kind, ...] = ("read", "edit", "run")
    for kind in kinds:
        expected = Denied(by=limit.name, reason=limit.reason) if kind in denied else Allowed()
        assert _judge(permissions, kind, workspace) == expected


@pytest.mark.parametrize("own", MODES)
@pytest.mark.parametrize("parents", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_child_verdict_is_the_strictest_of_child_and_parent(
    own: Mode, parents: Mode, kind: Kind, workspace: Workspace
) -> None:
    child, parent = Permissions(mode=own, allow=_rules("Bash(ls:*)")), Permissions(mode=parents)
    strictest = max(
        STRICTNESS.index(type(_judge(child, kind, workspace))), STRICTNESS.index(type(_judge(parent, kind, workspace)))
    )
    assert isinstance(_judge(child.within(parent), kind, workspace), STRICTNESS[strictest])


def test_child_inherits_rules_but_not_role_limits(workspace: Workspace) -> None:
    limit = RoleLimit(name="coordinator", reason="delegate it", allowed=frozenset())
    grandparent = Permissions(mode="bypassPermissions", deny=_rules("Bash(ls:*)"), limits=(limit,))
    parent = Permissions(mode="bypassPermissions", ask=_rules("Edit(src/**)"), limits=(limit,)).within(grandparent)
    child = Permissions(mode="bypassPermissions").within(parent)
    assert isinstance(_judge(child, "run", workspace), Denied)
    assert isinstance(_judge(child, "read", workspace), Allowed)
    nested = Permissions(mode="acceptEdits").within(Permissions(ask=_rules("Edit(src/**)"))).within(grandparent)
    assert isinstance(_judge(nested, "run", workspace), Denied)
    assert isinstance(_judge(nested, "edit", workspace), NeedsPrompt)


def test_rule_must_allow_the_call_in_child_and_parent(workspace: Workspace) -> None:
    rules = _rules("Bash(ls:*)")
    for child, parent in ((rules, ()), ((), rules)):
        verdict = _judge(Permissions(allow=child).within(Permissions(allow=parent)), "run", workspace)
        assert isinstance(verdict, NeedsPrompt)
        assert isinstance(
            _judge(Permissions(allow=child).within(Permissions(allow=parent)), "run", workspace, rules), Allowed
        )
    assert isinstance(_judge(Permissions(allow=rules).within(Permissions(allow=rules)), "run", workspace), Allowed)


@pytest.mark.parametrize(
    ("kind", "wide", "exact"), [("run", "Bash(ls:*)", "Bash(ls -l)"), ("edit", "Edit(src/**)", "Edit(src/a.py)")]
)
def test_granted_rule_waives_an_ask_rule_only_for_the_exact_call(
    kind: Kind, wide: str, exact: str, workspace: Workspace
) -> None:
    permissions = Permissions(ask=_rules(wide))
    verdict = _judge(permissions, kind, workspace, _rules(wide))
    assert isinstance(verdict, NeedsPrompt)
    assert verdict.question.rules == (exact,)
    assert isinstance(_judge(permissions, kind, workspace, verdict.rules), Allowed)


@pytest.mark.parametrize(
    ("mode", "kind", "remedy"),
    [
        ("dontAsk", "edit", "with the rule Edit(src/**) or the mode acceptEdits."),
        ("dontAsk", "edit outside", "with the rule Edit(/etc/hosts) or the mode bypassPermissions."),
        ("dontAsk", "read outside", "with the rule Read(/etc/hosts) or the mode bypassPermissions."),
        ("dontAsk", "run", "with the rule Bash(ls:*) or the mode bypassPermissions."),
        ("plan", "run", "until your plan is approved"),
    ],
)
def test_denial_names_the_way_to_allow_the_call(mode: Mode, kind: Kind, remedy: str, workspace: Workspace) -> None:
    verdict = _judge(Permissions(mode=mode), kind, workspace)
    assert isinstance(verdict, Denied)
    assert remedy in verdict.reason
    assert "\n" not in verdict.reason


def test_prompt_shows_the_call_with_its_arguments_and_the_reason(workspace: Workspace) -> None:
    command = "ls $(pwd) $((1))"
    verdict = Permissions().evaluate(Bash(), BashInput(command=command), workspace)
    assert isinstance(verdict, NeedsPrompt)
    assert (verdict.question.subject, verdict.question.rules, verdict.question.details) == (command, (), {})
    assert "it has arithmetic" in verdict.question.reason
    asks = _judge(Permissions(), "edit", workspace)
    assert isinstance(asks, NeedsPrompt)
    assert (asks.question.subject, asks.question.details) == ("src/a.py", {"content": "x"})


@pytest.mark.parametrize("mode", MODES)
def test_shared_directory_is_open_in_every_mode(mode: Mode, tmp_path: Path) -> None:
    """Not open are files next to it, targets of links in it, and commands that write to it."""
    shared = tmp_path / "home" / "sessions" / "x" / "scratch"
    shared.mkdir(parents=True)
    (shared / "link").symlink_to(tmp_path / "home")
    workspace = Workspace(root=tmp_path / "project", scratch=tmp_path / "own", shared=shared)
    permissions = Permissions(mode=mode)

    def verdict(tool: Tool, arguments: Any) -> Verdict:
        return permissions.evaluate(tool, arguments, workspace)

    for path in (shared / "a.md", shared / "deeper" / "a.md"):
        assert verdict(Write(), WriteInput(file_path=str(path), content="x")) == Allowed()
        assert verdict(Read(), ReadInput(file_path=str(path))) == Allowed()
    call = WriteInput(file_path=str(shared / "a.md"), content="x")
    limit = RoleLimit(name="coordinator", reason="delegate it", allowed=frozenset({"Agent"}))
    for stricter in (Permissions(mode=mode, deny=_rules("Write")), Permissions(mode=mode, limits=(limit,))):
        assert isinstance(stricter.evaluate(Write(), call, workspace), Denied)
    if mode == "bypassPermissions":
        return
    for path in (shared.parent / "a.md", shared / "link" / "a.md", shared / ".." / "roster.json"):
        assert verdict(Write(), WriteInput(file_path=str(path), content="x")) != Allowed()
        assert verdict(Read(), ReadInput(file_path=str(path))) != Allowed()
    assert verdict(Bash(), BashInput(command=f"touch {shared}/a")) != Allowed()


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (Permissions(), Allowed(by="sandbox")),
        (Permissions(mode="dontAsk"), Allowed(by="sandbox")),
        (Permissions(mode="plan"), Denied),
        (Permissions(deny=_rules("Bash(ls:*)")), Denied),
        (Permissions(ask=_rules("Bash(ls:*)")), NeedsPrompt),
    ],
)
def test_a_command_in_a_sandbox_may_need_no_permission(
    permissions: Permissions, expected: Verdict | type[Verdict], tmp_path: Path
) -> None:
    sandbox = Sandbox(way="landlock", root=tmp_path, temporary=tmp_path)
    held, free = (
        Workspace(root=tmp_path, scratch=tmp_path / "scratch", sandbox=attrs.evolve(sandbox, asks_no_more=is_free))
        for is_free in (False, True)
    )
    verdict = _judge(permissions, "run", free)
    assert expected in (verdict, type(verdict))
    assert not isinstance(_judge(permissions, "run", held), Allowed), "being held is no permission"
    assert isinstance(_judge(Permissions(), "edit", free), NeedsPrompt), "other tools are not held"


ALLOW, ASK = Vote(wants="allow"), Vote(wants="ask", reason="sure?")


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (Permissions(), Allowed(by="hook")),
        (Permissions(mode="acceptEdits"), Allowed(by="hook")),
        (Permissions(deny=_rules("Bash(ls:*)")), Denied),
        (Permissions(mode="plan"), Denied),
        (Permissions(mode="dontAsk"), Denied),
        (Permissions(limits=(RoleLimit(name="x", reason="no", denied=frozenset({"Bash"})),)), Denied),
        (Permissions().within(Permissions(deny=_rules("Bash"))), Denied),
        (Permissions(mode="bypassPermissions").within(Permissions(mode="plan")), Denied),
        (Permissions(ask=_rules("Bash(ls:*)")), NeedsPrompt),
        (Permissions().within(Permissions(ask=_rules("Bash(ls:*)"))), NeedsPrompt),
    ],
)
def test_allow_vote_of_a_hook_skips_only_the_prompt_of_the_mode(
    permissions: Permissions, expected: Verdict | type[Verdict], workspace: Workspace
) -> None:
    verdict = permissions.evaluate(*CALLS["run"], workspace, vote=ALLOW)
    assert expected in (verdict, type(verdict))


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_ask_vote_of_a_hook_prompts_in_every_mode(mode: Mode, workspace: Workspace) -> None:
    permissions = Permissions(mode=mode, allow=_rules("Bash"))
    verdict = permissions.evaluate(*CALLS["run"], workspace, permissions.allow, vote=ASK)
    assert isinstance(verdict, NeedsPrompt)
    assert (verdict.by, verdict.question.reason, verdict.question.rules) == ("hook", "a hook asks for it: sure?", ())
    silent = attrs.evolve(permissions, mode="dontAsk")
    assert isinstance(silent.evaluate(*CALLS["run"], workspace, vote=ASK), Denied)
