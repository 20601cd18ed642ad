"""Hook files: directories, order, owners and problems."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.hooks.hook_files import approve_sources, hook_sources, select_hooks
from coterie.agents.settings import HookSettings
from coterie.source_positions import JsonPositions

FLAWED = """{
 "hooks": {
  "PreToolUze": [],
  "Stop": [
   {"hooks": [
    {"type": "command", "command": "good"},
    {"type": "command",
     "command": "slow", "timeout": -1}
   ]},
   {"matcher":
    "(x"}]
 }
}
"""


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    for place in ("home", "claude", "project/.git", "project/.claude", "project/.coterie"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path / "project"


def write_json(path: Path, command: str, **besides: Any) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}
    path.write_text(json.dumps({"permissions": {}, "hooks": hooks, **besides}))


def write_toml(path: Path, command: str) -> None:
    path.write_text(f'model = "opus"\n[[hooks.Stop]]\ncommand = "{command}"\n')


def commands(project: Path, settings: HookSettings | None = None) -> list[tuple[str, str]]:
    sources = hook_sources(project, settings or HookSettings(), project.parent / "managed.toml")
    return [(source.owner, hook.command) for source in sources for hook in source.hooks]


def write_all(project: Path) -> None:
    write_toml(project.parent / "managed.toml", "1")
    write_toml(project.parent / "home/settings.toml", "2")
    write_json(project.parent / "claude/settings.json", "3")
    write_json(project / ".claude/settings.json", "4")
    write_json(project / ".claude/settings.local.json", "5")
    write_toml(project / ".coterie/settings.toml", "6")
    write_toml(project / ".coterie/settings.local.toml", "7")


def test_hooks_of_all_files_are_combined_with_their_owner(project: Path) -> None:
    write_all(project)
    owners = ["machine", "user", "user", "project", "project", "project", "project"]
    assert commands(project) == list(zip(owners, "1234567", strict=True))
    (project / "deeper").mkdir()
    assert len(hook_sources(project / "deeper", HookSettings(), project.parent / "managed.toml")) == 7


def test_files_can_be_left_out_and_the_project_can_switch_off_only_its_own(project: Path) -> None:
    write_all(project)
    assert [command for _, command in commands(project, HookSettings(claude=False))] == ["1", "2", "6", "7"]
    write_json(project / ".claude/settings.local.json", "5", disableAllHooks=True)
    assert [command for _, command in commands(project)] == ["1", "2", "3", "6", "7"]
    write_json(project.parent / "claude/settings.json", "3", disableAllHooks=True)
    assert [command for _, command in commands(project)] == ["1", "2", "6", "7"]


def test_files_belong_to_the_user_if_the_project_is_the_home(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(project)
    monkeypatch.setenv("COTERIE_HOME", str(project / ".coterie"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(project / ".claude"))
    assert commands(project) == [("machine", "1"), ("user", "6"), ("user", "4"), ("project", "7")]


def test_problems_have_file_and_line_and_valid_hooks_stay(project: Path) -> None:
    (project / ".claude/settings.json").write_text(FLAWED)
    (project / ".coterie/settings.toml").write_text('model = "opus"\n\n[[hooks.Stopp]]\ncommand = "x"\n')
    claude, ours = hook_sources(project, HookSettings(), project / "none")
    assert [hook.command for hook in claude.hooks] == ["good", "slow"]
    path = project / ".claude/settings.json"
    assert [flaw.split(" ")[0] for flaw in claude.problems] == [f"{path}:3:", f"{path}:8:", f"{path}:10:"]
    assert ours.problems == (f"{project / '.coterie/settings.toml'}:3: unknown event 'Stopp'; did you mean Stop?",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "not a file of at most 1,000,000 bytes; its hooks do not run"),
        (b"{", "not valid JSON, so its hooks do not run: "),
        (b"[" * 100_000, "not valid JSON, so its hooks do not run: "),
        (b"[]", "must be a JSON object; its hooks do not run"),
        (b"\xff", "cannot be read, so its hooks do not run: "),
        (b'{"hooks": []}', "hooks must be a table of events, not a list"),
        (b" " * 1_000_001, "not a file of at most 1,000,000 bytes; its hooks do not run"),
    ],
)
def test_unreadable_file_is_one_problem_and_other_files_stay(project: Path, content: bytes | None, words: str) -> None:
    write_all(project)
    path = project / ".claude/settings.json"
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(content)
    sources = hook_sources(project, HookSettings(), project.parent / "managed.toml")
    [flaw] = [flaw for source in sources for flaw in source.problems]
    assert flaw.startswith(str(project / ".claude/settings.json"))
    assert words in flaw
    assert len(commands(project)) == 6


def test_project_hooks_wait_for_the_approval_of_their_content(project: Path) -> None:
    write_all(project)

    def held() -> tuple[str, str, str | None]:
        found = select_hooks(project, hook_sources(project, HookSettings(), project.parent / "managed.toml"))
        running = "".join(hook.command for hook in found.hooks)
        waiting = "".join(hook.command for source in found.waiting for hook in source.hooks)
        return running, waiting, found.notice()

    running, waiting, notice = held()
    assert (running, waiting) == ("123", "4567")
    assert notice is not None
    assert "settings.local.toml (1 hook); review and approve them with `coterie hooks approve`" in notice
    sources = hook_sources(project, HookSettings(), project.parent / "managed.toml")
    approve_sources(project, [source for source in sources if source.owner == "project"])
    assert held() == ("1234567", "", None)
    write_json(project / ".claude/settings.json", "4 ")
    assert held()[:2] == ("123567", "4 ")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the positions of values with a separate line: values of tables, and tables and lists in lists."""
    found = [place]
    if isinstance(value, dict):
        found += [each for key, inner in value.items() for each in places(inner, (*place, key))]
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            if isinstance(inner, dict | list):
                found += places(inner, (*place, at))
    return found


@given(VALUES, st.sampled_from([None, 1]))
def test_lines_of_any_json_are_found(value: Any, indent: int | None) -> None:
    text = json.dumps({"top": value}, indent=indent)
    lines = JsonPositions.parse(text)
    for place in places({"top": value}):
        line = lines.line_of(*place)
        assert 1 <= line <= text.count("\n") + 1
        if place and isinstance(place[-1], str):
            assert json.dumps(place[-1]) in text.split("\n")[line - 1]
