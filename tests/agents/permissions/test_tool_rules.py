"""Rules for files and protected paths, with disguised paths, for agent types, and for hosts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.permissions import path_pattern
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import RoleLimit, Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt, Verdict
from coterie.agents.tools.files.edit import Edit, EditInput
from coterie.agents.tools.files.glob import Glob, GlobInput
from coterie.agents.tools.files.notebook_edit import NotebookEdit, NotebookEditInput
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.search.grep import Grep, GrepInput
from coterie.agents.tools.team.agent_tool import AgentInput, AgentTool
from coterie.agents.tools.tool import Tool, Workspace
from coterie.agents.tools.web.hosts import HostList, WebAddress
from coterie.agents.tools.web.web_fetch import PageCache, WebFetch, WebFetchInput
from coterie.errors import ConfigInvalid


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Workspace next to a secret, with links that lead outside, inside, and in a cycle."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    root = tmp_path / "root"
    (root / "src/lib").mkdir(parents=True)
    (root / "vault").mkdir()
    (root / "vault/key").write_text("k")
    (root / ".env").write_text("e")
    (root / "src/a.py").write_text("a")
    (tmp_path / "secret").write_text("s")
    (tmp_path / "home/session/tool-results").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to(tmp_path)
    (root / "src/hooks").symlink_to(root / ".git/hooks")
    (root / "alias").symlink_to(root / "vault")
    (root / "loop").symlink_to(root / "loop")
    return Workspace(root=root, scratch=tmp_path / "home/session")


EDITORS, SEARCHES = "Edit Write NotebookEdit", "Read Grep Glob"


def _call(tool: str, path: str) -> tuple[Tool, Any]:
    calls: dict[str, tuple[Tool, Any]] = {
        "Read": (Read(), ReadInput(file_path=path)),
        "Edit": (Edit(), EditInput(file_path=path, old_string="a", new_string="b")),
        "Write": (Write(), WriteInput(file_path=path, content="x")),
        "NotebookEdit": (NotebookEdit(), NotebookEditInput(notebook_path=path, cell_number=1, new_source="x")),
        "Grep": (Grep(), GrepInput(pattern="x", path=path)),
        "Glob": (Glob(), GlobInput(pattern="*", path=path)),
    }
    return calls[tool]


def _judge(permissions: Permissions, tool: str, path: str, workspace: Workspace) -> Verdict:
    return permissions.evaluate(*_call(tool, path.replace("TOP", str(workspace.root.parent))), workspace)


def _rules(workspace: Workspace, *texts: str) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text.replace("TOP", str(workspace.root.parent)), "test") for text in texts)


@pytest.mark.parametrize("tool", SEARCHES.split())
@pytest.mark.parametrize("path", ["src/a.py", "src/../src/a.py", "./src", "missing/c", ".git/config", "TOP/root/src"])
def test_reading_inside_is_allowed(workspace: Workspace, tool: str, path: str) -> None:
    assert _judge(Permissions(), tool, path, workspace) == Allowed()


OUTSIDE = ["../secret", "/etc/passwd", "out", "up/secret", "src/../../secret", "src/../up/secret", "TOP/rootx", "up"]


@pytest.mark.parametrize("tool", ["Read", "Grep", "Edit", "Write", "NotebookEdit"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_disguised_path_outside_prompts(workspace: Workspace, tool: str, path: str) -> None:
    modes: tuple[Mode, ...] = ("default", "acceptEdits")
    for mode in modes:
        verdict = _judge(Permissions(mode=mode), tool, path, workspace)
        assert isinstance(verdict, NeedsPrompt)
        assert "is outside" in verdict.question.reason


PROTECTED = [
    *(".git", ".git/config", ".GIT/hooks/x", "src/.git/x", ".coterie/settings.toml", ".claude/agents/a.md"),
    ".mcp.json",
    *(".bashrc", "src/.BashRC", ".zshenv", ".gitconfig", ".gitmodules", ".ssh/id", ".netrc", ".envrc"),
    ".vscode/tasks.json",
    *("src/../.git/config", "src/hooks/pre-commit", "up/root/.git/x", "./.Git/x", "x/../.claude/../.claude/x"),
    *("TOP/home/agents/a.md", "up/home/x", "TOP/home/session/tool-results/x", "TOP/other/.git/x", "TOP/HOME/x"),
]


@pytest.mark.parametrize("tool", EDITORS.split())
@pytest.mark.parametrize("path", PROTECTED)
def test_protected_path_can_only_be_edited_in_bypass_mode(workspace: Workspace, tool: str, path: str) -> None:
    rules = _rules(workspace, "Edit", "Edit(/**)", "*")
    for mode in ("default", "acceptEdits"):
        verdict = _judge(Permissions(mode=mode, allow=rules), tool, path, workspace)
        assert isinstance(verdict, Denied)
        assert verdict.by == "protected path"
    assert _judge(Permissions(mode="bypassPermissions"), tool, path, workspace) == Allowed()


@pytest.mark.parametrize("path", ["src/a.py", "git/x", ".gitignore", "src/.github/x", "my.git/x", "bashrc", ".env"])
def test_accept_edits_allows_other_paths(workspace: Workspace, path: str) -> None:
    assert _judge(Permissions(mode="acceptEdits"), "Edit", path, workspace) == Allowed()
    assert isinstance(_judge(Permissions(), "Edit", path, workspace), NeedsPrompt)


def test_custom_project_directory_is_protected_and_own_results_are_readable(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_PROJECT_DIR", ".team")
    assert isinstance(_judge(Permissions(mode="acceptEdits"), "Edit", ".team/agents/a.md", workspace), Denied)
    results = "TOP/home/session/tool-results"
    for tool in ("Read", "Grep"):
        assert _judge(Permissions(), tool, f"{results}/t1.txt", workspace) == Allowed()
        assert _judge(Permissions(), tool, f"{results}/../jobs/bash_1.out", workspace) == Allowed()
        assert isinstance(_judge(Permissions(), tool, f"{results}/../notes.md", workspace), NeedsPrompt)
        assert isinstance(_judge(Permissions(), tool, "TOP/home/other/tool-results/t", workspace), NeedsPrompt)


Cases = Mapping[str, Mapping[str, str]]
"""Rule -> tools -> paths, both separated by spaces."""


def _each(meant: Cases, others: Cases) -> pytest.MarkDecorator:
    """One case for each tool and path under its rule."""
    rows = [
        (rule, tool, path, is_meant)
        for cases, is_meant in ((meant, True), (others, False))
        for rule, calls in cases.items()
        for tools in calls
        for tool in tools.split()
        for path in calls[tools].split()
    ]
    return pytest.mark.parametrize(("rule", "tool", "path", "is_meant"), rows)


COVERED: Cases = {
    "Edit(src/**)": {EDITORS: "src/a.py src/lib/b alias/../src/x"},
    "Edit(src)": {"Edit": "src/a.py src/lib/b"},
    "Edit(*.py)": {"Edit": "a.py src/lib/a.py"},
    "Edit(./*.py)": {"Edit": "a.py ./src/../a.py"},
    "Edit(src/*.{py,md})": {"Write": "src/a.py src/b.md"},
    "Edit(TOP/other/**)": {"Edit": "TOP/other/x up/other/x ../other/x"},
    "Read(TOP/**)": {SEARCHES: "TOP/secret out up"},
    "Read(TOP/secret)": {"Read": "../secret out"},
    **{rule: {"Write": "src/x"} for rule in ("Edit", "Write", "*", "Write(src/**)", "Edit(**)", "Edit(./**)")},
    **{rule: {"Grep": "/etc"} for rule in ("Read", "Grep", "Grep(/etc)", "Read(/etc/)", "Read(/**)")},
}
NOT_COVERED: Cases = {
    "Edit(src/**)": {"Edit": "a.py srcx/a src/../a.py src/../../secret lib/src/a"},
    "Edit(src/*.py)": {"Edit": "src/lib/a.py src/a.pyc src/a.py/../../x a.py"},
    "Edit(./*.py)": {"Edit": "src/a.py"},
    "Edit(**)": {"Edit": "../secret out up/secret /etc/passwd"},
    "Edit(out)": {"Edit": "out ../secret"},
    "Edit(up/**)": {"Edit": "up/secret ../secret"},
    "Edit(TOP/**)": {"Read": "TOP/secret"},
    "Read(TOP/*.txt)": {"Grep": "TOP .."},
    **{rule: {"Edit": "src/a.py"} for rule in ("Read(src/**)", "Write(src/**)", "Bash")},
}


@_each(COVERED, NOT_COVERED)
def test_allow_rule_covers_only_its_path_and_everything_below(
    workspace: Workspace, rule: str, tool: str, path: str, *, is_meant: bool
) -> None:
    verdict = _judge(Permissions(allow=_rules(workspace, rule)), tool, path, workspace)
    assert isinstance(verdict, Allowed if is_meant else NeedsPrompt)
    assert verdict.by == rule.replace("TOP", str(workspace.root.parent)) or not is_meant


MATCHED: Cases = {
    "Read(vault/**)": {"Read Grep": "vault/key alias/key src/../vault/key", "Grep Glob": ". vault alias up /"},
    "Read(alias/**)": {"Read Grep": "vault/key alias/key"},
    "Read(.env)": {"Read Grep": ".env ./src/../.env src/.env", "Grep Glob": ". up/root"},
    "Read(*.py)": {"Grep": "src . src/a.py"},
    "Read(TOP/secret)": {"Read Grep": "out ../secret TOP/secret", "Grep": "up .. /"},
    "Edit(src/**)": {EDITORS: "src/a.py up/root/src/new src/lib/../b"},
    **{rule: {"Write": "src/x"} for rule in ("Edit", "Write", "*", "Edit(x)", "Edit(src/?)")},
}
UNMATCHED: Cases = {
    "Read(vault/**)": {"Grep": "src src/a.py missing", "Write": "vault/key"},
    "Read(.env)": {"Grep": "src vault"},
    "Read(*.py)": {"Grep": "vault src/lib"},
    "Read(missing/**)": {"Grep": ". src"},
    "Read(loop/**)": {"Grep": "src"},
    "Edit(vault/**)": {"Read": "vault/key"},
}


@_each(MATCHED, UNMATCHED)
def test_deny_rule_matches_behind_links_and_inside_searches_and_nothing_else(
    workspace: Workspace, rule: str, tool: str, path: str, *, is_meant: bool
) -> None:
    for mode in ("default", "bypassPermissions"):
        permissions = Permissions(mode=mode, allow=_rules(workspace, "*"), deny=_rules(workspace, rule))
        assert isinstance(_judge(permissions, tool, path, workspace), Denied if is_meant else Allowed)


def test_too_large_search_counts_as_a_match_of_a_deny_rule(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    permissions = Permissions(deny=_rules(workspace, "Read(*.none)"))
    assert _judge(permissions, "Grep", ".", workspace) == Allowed()
    monkeypatch.setattr(path_pattern, "SEARCH_LIMIT", 3)
    assert isinstance(_judge(permissions, "Grep", ".", workspace), Denied)


@pytest.mark.parametrize(
    ("tool", "path", "rule"),
    [
        ("Edit", "src/a.py", "Edit(src/**)"),
        ("Write", "src/lib/b.py", "Edit(src/lib/**)"),
        ("Write", "a.py", "Edit(./a.py)"),
        ("NotebookEdit", "src/a.ipynb", "Edit(src/**)"),
        ("Write", "a[b].py", "Edit(./a[[]b].py)"),
        ("Write", "TOP/x", "Edit(TOP/x)"),
        ("Read", "../secret", "Read(TOP/secret)"),
        ("Grep", "TOP", "Read(TOP)"),
    ],
)
def test_proposed_path_rule_is_narrow_and_sufficient(workspace: Workspace, tool: str, path: str, rule: str) -> None:
    verdict = _judge(Permissions(), tool, path, workspace)
    assert isinstance(verdict, NeedsPrompt)
    (proposed,) = verdict.rules
    assert proposed.text == rule.replace("TOP", str(workspace.root.parent))
    for allow in (proposed, Rule.parse(proposed.text, "test")):
        assert isinstance(_judge(Permissions(allow=(allow,)), tool, path, workspace), Allowed)


async def _nothing(_address: WebAddress, _hosts: tuple[HostList, ...]) -> str:
    return ""


# The tools never run: permissions only look at the call.
AGENT = AgentTool(spawner=None, mail=None, agent_types={})  # type: ignore[arg-type]
FETCH = WebFetch(hosts=(), cache=PageCache(lambda: 0.0), load=_nothing)


def _parsed(*texts: str) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text, "test") for text in texts)


def _judge_start(permissions: Permissions, kind: str, workspace: Workspace) -> Verdict:
    return permissions.evaluate(AGENT, AgentInput(description="l", prompt="L.", subagent_type=kind), workspace)


def _judge_fetch(permissions: Permissions, url: str, workspace: Workspace) -> Verdict:
    return permissions.evaluate(FETCH, WebFetchInput(url=url), workspace)


@pytest.mark.parametrize(
    ("rule", "is_meant"),
    [
        *((rule, True) for rule in ("Agent", "Agent(*)", "Agent(tester)", "Agent(reviewer, tester)")),
        *((rule, False) for rule in ("Agent(reviewer)", "Agent(test)", "Read")),
    ],
)
def test_rule_matches_the_agent_types_it_names(workspace: Workspace, rule: str, *, is_meant: bool) -> None:
    assert isinstance(_judge_start(Permissions(deny=_parsed(rule)), "tester", workspace), Denied) is is_meant


def test_definition_that_names_agent_types_starts_no_others(workspace: Workspace) -> None:
    only = _parsed("Agent(reviewer, tester)")
    permissions = Permissions(limits=(RoleLimit(name="x", reason="no", allowed=frozenset({"Agent"}), only=only),))
    assert not isinstance(_judge_start(permissions, "tester", workspace), Denied)
    assert isinstance(_judge_start(permissions, "deployer", workspace), Denied)


@pytest.mark.parametrize(
    ("rule", "url", "is_meant"),
    [
        *((rule, "https://a.org", True) for rule in ("WebFetch", "WebFetch(*)", "*")),
        ("WebFetch(domain:a.org)", "https://A.org:8443/x", True),
        ("WebFetch(domain:a.org)", "https://www.a.org", False),
        ("WebFetch(domain:*.a.org)", "https://www.a.org", True),
        ("WebFetch(domain:*.a.org)", "https://a.org", False),
        ("WebFetch(domain:127.0.0.1)", "http://127.0.0.1:80", True),
        *((rule, "https://a.org", False) for rule in ("Read", "Bash")),
    ],
)
def test_rule_matches_hosts(rule: str, url: str, workspace: Workspace, *, is_meant: bool) -> None:
    assert isinstance(_judge_fetch(Permissions(deny=_parsed(rule)), url, workspace), Denied) is is_meant
    asked = _judge_fetch(Permissions(ask=_parsed(rule)), url, workspace)
    assert isinstance(asked, NeedsPrompt) is is_meant
    if isinstance(asked, NeedsPrompt):
        assert asked.question.subject == url


def test_session_approval_applies_to_host(workspace: Workspace) -> None:
    asked = _judge_fetch(Permissions(ask=_parsed("WebFetch")), "https://a.org/x", workspace)
    assert isinstance(asked, NeedsPrompt)
    assert asked.question.rules == ("WebFetch(domain:a.org)",)


@pytest.mark.parametrize("mode", ["default", "plan", "dontAsk"])
def test_a_listed_host_needs_no_permission(mode: Mode, workspace: Workspace) -> None:
    assert _judge_fetch(Permissions(mode=mode), "https://a.org", workspace) == Allowed()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Agent(reviewer,,tester)", r"empty name in its brackets.*Agent\(reviewer\)"),
        *(
            (f"WebFetch({host})", "write for example WebFetch")
            for host in ("a.org", "domain:", "domain:a/b", "https://a.org")
        ),
    ],
)
def test_invalid_rule_is_refused_with_an_example(text: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=hint):
        Rule.parse(text, "test")
