import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.definition_files import MAX_BYTES, FileProblem
from coterie.agents.definitions.store import AgentDefinitions, load_definitions, load_path, parse_definition
from coterie.agents.hooks.hook import Hook
from coterie.errors import ConfigInvalid
from tests.examples import examples

PATH = Path("reviewer.md")


def _read(text: str) -> tuple[AgentDefinition | None, list[FileProblem]]:
    return parse_definition(text, path=PATH, scope="project")


def _with(*lines: str) -> tuple[AgentDefinition, list[FileProblem]]:
    """Parse a definition with *lines* in its front matter, from line 4 on."""
    head = "\n".join(["---", "name: reviewer", "description: Reviews.", *lines, "---"])
    definition, problems = _read(f"{head}\nLook closely.\n")
    assert definition is not None
    return definition, problems


def test_all_keys_are_read() -> None:
    definition, problems = _with(
        "tools: Read, Bash(git log:*, git diff:*)",
        "disallowedTools: [Write, Edit]",
        "model: opus",
        "permissionMode: acceptEdits",
        "maxTurns: 12",
        "memory: project",
        "background: true",
        "process: shared",
        "isolation: worktree",
    )
    assert problems == []
    assert definition == AgentDefinition(
        name="reviewer",
        description="Reviews.",
        prompt="Look closely.",
        tools=("Read", "Bash(git log:*, git diff:*)"),
        disallowed_tools=("Write", "Edit"),
        model="opus",
        permission_mode="acceptEdits",
        max_turns=12,
        memory="project",
        background=True,
        process="shared",
        isolation="worktree",
        scope="project",
        source=PATH,
    )
    assert _with() == (
        AgentDefinition(name="reviewer", description="Reviews.", prompt="Look closely.", scope="project", source=PATH),
        [],
    )


@pytest.mark.parametrize(
    ("line", "tools"),
    [
        *((f"tools: {said}", ("Read", "Grep")) for said in ("Read, Grep", "Read Grep", "[Read, Grep]")),
        *((f"tools: {said}", ("Read", "Grep")) for said in ("Read, Read,, Grep,", "'`Read`, \"Grep\"'")),
        ("tools:\n  - Read\n  - Grep", ("Read", "Grep")),
        ("tools: [mcp__x__y, Read]", ("mcp__x__y", "Read")),
        ("tools: Bash(a (b), c), Read", ("Bash(a (b), c)", "Read")),
        ("tools: [Bash(a, b), Read]", ("Bash(a, b)", "Read")),
        ("tools:\n  - Bash(git: x)\n  - Read", ("Bash(git: x)", "Read")),
        ("tools: []", ()),
        *((line, None) for line in ("tools: '*'", "tools: [Read, '*']", "tools: All tools", "model: inherit")),
    ],
)
def test_tools_are_read_however_they_are_separated(line: str, tools: tuple[str, ...] | None) -> None:
    definition, problems = _with(line)
    assert definition.tools == tools
    assert problems == []


@pytest.mark.parametrize(
    ("line", "severity", "reason"),
    [
        ("tools: Read, grpe", "note", "unknown tool 'grpe' in tools; did you mean Grep?"),
        ("tools: WebSearch", "note", "unknown tool 'WebSearch' in tools"),
        ("disallowedTools: edit", "note", "unknown tool 'edit' in disallowedTools; did you mean Edit?"),
        ("tools: Bash(git", "warning", "'Bash(git' in tools has no closing bracket"),
        ("tools:", "warning", "tools is empty and is ignored; `[]` is an empty list"),
        ("tools: {a: b}", "warning", "tools must be a list, not a mapping; until then no tool may be used"),
        ("colour: blue", "warning", "unknown key 'colour' is ignored; did you mean color?"),
        ("color: purpel", "warning", "unknown color 'purpel' is ignored; did you mean purple?"),
        ("effort: much", "warning", "effort 'much' is ignored; it can be low, medium, high, xhigh, max"),
        ("capabilities: [a]", "note", "'capabilities' is ignored: it has no effect here"),
        ("triggers: x", "note", "'triggers' is ignored: `description` alone says when to use it"),
        ("skills: {a: b}", "warning", "skills must be a list of names, and is ignored"),
        ("tools: Task", "note", "'Task' in tools is replaced by Agent"),
        ("hooks: x", "warning", "hooks must be a table of events, not 'x'"),
        ("permisionMode: plan", "warning", "unknown key 'permisionMode' is ignored; did you mean permissionMode?"),
        ("allowed-tools: Read", "warning", "unknown key 'allowed-tools' is ignored; use `tools`"),
        ("max_turns: 3", "note", "'max_turns' is interpreted as 'maxTurns'"),
        ("maxTurns: many", "warning", "maxTurns 'many' is ignored; it must be a whole number above 0"),
        ("maxTurns: 0", "warning", "maxTurns '0' is ignored; it must be a whole number above 0"),
        ("maxTurns: [3]", "warning", "maxTurns must be text, not a list, and is ignored"),
        ("memory: all", "warning", "memory 'all' is ignored; it can be user, project, local"),
        ("background: maybe", "warning", "background 'maybe' is ignored; it can be true or false"),
        ("isolation: vm", "warning", "isolation 'vm' is ignored; it can be worktree"),
        ("process: many", "warning", "process 'many' is ignored; it can be own, shared"),
        ("model: claude-sonet", "warning", "unknown model 'claude-sonet' is ignored; did you mean claude-sonnet"),
        ("permissionMode: foo", "warning", "permissionMode 'foo' is ignored; it can be default, "),
    ],
)
def test_invalid_value_is_reported_with_its_line_and_ignored(line: str, severity: str, reason: str) -> None:
    definition, [problem] = _with(line)
    assert (problem.line, problem.severity) == (4, severity)
    assert problem.reason.startswith(reason)
    assert (definition.model, definition.permission_mode, definition.memory) == (None, None, None)
    assert definition.max_turns == (3 if line == "max_turns: 3" else None)


def test_exact_spelling_wins_over_another_spelling() -> None:
    definition, [problem] = _with("max_turns: 3", "maxTurns: 4")
    assert (definition.max_turns, problem.line) == (4, 4)


@pytest.mark.parametrize(
    ("line", "tools", "disallowed"),
    [
        ("tools: WebFetch, Read", ("WebFetch", "Read"), ()),
        ("tools: {write: false}", (), ()),
        ("disallowedTools: {write: true}", None, ("*",)),
        ("disallowedTools: '*'", None, ("*",)),
        ("tools: *", None, ()),
    ],
)
def test_unreadable_limit_allows_nothing_and_unknown_tools_stay(
    line: str, tools: tuple[str, ...] | None, disallowed: tuple[str, ...]
) -> None:
    definition, _ = _with(line)
    assert (definition.tools, definition.disallowed_tools) == (tools, disallowed)


@pytest.mark.parametrize(
    ("text", "lines", "reason"),
    [
        ("---\nmodel: opus\n---\n", [1, 1], "name is missing: "),
        ("Just a prompt.", [1], "no front matter: start with a line `---`"),
        ("", [1], "no front matter: start with a line `---`"),
        ("---\ndescription: x\n---\nGo.", [1], "name is missing: add a line such as `name: reviewer`"),
        ("---\nname: x\ndescription:\n---\nGo.", [3], "description is missing: add a line such as `description: "),
        ("---\nname: [a]\ndescription: x\n---\nGo.", [2], "name is missing: "),
        ('---\nname: "a\\e[2J"\ndescription: x\n---\nGo.', [2], "'a\\x1b[2J' is not a valid name: "),
        ("---\nname: |\n  a\n  b\ndescription: x\n---\nGo.", [2], "'a\\nb' is not a valid name: "),
    ],
)
def test_no_definition_is_made_without_a_usable_name_and_description(text: str, lines: list[int], reason: str) -> None:
    definition, problems = _read(text)
    errors = [problem for problem in problems if problem.severity == "error"]
    assert definition is None
    assert [error.line for error in errors] == lines
    assert errors[0].reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "description", "problem"),
    [
        ("name: x\nmetadata:\n  description: y\n---\nGo.", "y", ":3: note: description is taken from metadata"),
        ("name: x\ndescription: y\n---\n \n", "y", ":1: warning: the prompt is empty"),
        ("name: x\ndescription: a: b\n---\nGo.", "a: b", ":3: note: 'description' is not valid YAML"),
    ],
)
def test_imperfect_definition_is_used_with_a_problem(text: str, description: str, problem: str) -> None:
    definition, problems = _read(f"---\n{text}")
    assert definition is not None
    assert definition.description == description
    assert any(str(each).startswith(f"reviewer.md{problem}") for each in problems)


@examples(40)
@given(st.lists(st.sampled_from(["name", "description", "tools", "maxTurns", "model", "x"])), st.text(), st.text())
def test_no_text_raises(keys: list[str], value: str, body: str) -> None:
    _read("\n".join(["---", *(f"{key}: {value}" for key in keys), "---", body]))


def test_servers_are_named_or_configured_and_problems_have_a_line() -> None:
    definition, [problem] = _with(
        *("mcpServers:", "  - tracker", "  - {own: {command: run, args: [x]}}", "  - {old: {type: sse, url: http://h}}")
    )
    assert definition.mcp_servers == ("tracker", "own")
    [own] = definition.own_servers
    assert (own.name, own.command, own.is_shared) == ("own", ("run", "x"), False)
    assert (problem.line, problem.severity) == (4, "warning")
    assert "old is of the type sse" in problem.reason


@pytest.mark.parametrize(
    ("text", "names"), [("a, b", ("a", "b")), ("[a b]", ("a_b",)), ("{a: {command: x}}", ("a",)), ("[]", ())]
)
def test_server_list_accepts_the_usual_notations(text: str, names: tuple[str, ...]) -> None:
    definition, problems = _with(f"mcpServers: {text}")
    assert (definition.mcp_servers, problems) == (names, [])


HOOKS = """hooks:
  PreToolUze:
    - hooks: []
  Stop:
    - hooks: [{type: command, command: good, timeout: soon}]"""


def test_every_problem_of_hooks_has_its_line_and_valid_hooks_stay() -> None:
    definition, problems = _with(HOOKS)
    assert definition.hooks == (Hook(event="Stop", command="good", source="reviewer.md"),)
    assert [(problem.line, problem.severity) for problem in problems] == [(5, "warning"), (8, "warning")]
    assert "PreToolUse?" in problems[0].reason
    assert "timeout must be seconds" in problems[1].reason


BUILT_IN = {"general-purpose", "explore", "plan", "worker", "verifier", "coordinator"}


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def _write(path: Path, name: str, description: str = "Does it.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\n---\nGo.\n")
    return path


def _errors(found: AgentDefinitions) -> list[str]:
    return [f"{problem.path.name}: {problem.reason}" for problem in found.problems if problem.severity == "error"]


def test_built_in_definitions_have_no_problems_and_readers_can_only_read(project: Path) -> None:
    found = load_definitions(project)
    assert found.by_name.keys() == BUILT_IN
    assert found.problems == ()
    assert {definition.scope for definition in found.by_name.values()} == {"built-in"}
    for name in ("explore", "plan"):
        assert found.get(name).tools == ("Read", "Grep", "Glob", "SearchTranscript")
        assert found.get(name).process == "shared"
    verifier = found.get("verifier").tools
    assert verifier is not None
    assert "Bash" in verifier
    assert not {"Write", "Edit"} & set(verifier)
    assert found.get("general-purpose").tools is None
    with pytest.raises(ConfigInvalid, match="unknown agent type 'explorer'; did you mean explore"):
        found.get("explorer")


def test_later_directory_wins_with_a_note(project: Path, tmp_path: Path) -> None:
    places = [tmp_path / "home/agents/a.md", project / ".claude/agents/a.md", project / ".coterie/agents/deep/er/a.md"]
    for place, scope in zip(places, ("user", "claude", "project"), strict=True):
        _write(place, "explore", f"From {scope}.")
        found = load_definitions(project / "src")
        assert found.get("explore").scope == scope
        assert found.get("explore").description == f"From {scope}."
        assert found.problems[-1].path == place
        assert {problem.severity for problem in found.problems} == {"note"}
    assert [problem.reason for problem in found.problems] == [
        "replaces the built-in 'explore'",
        f"replaces 'explore' of {places[0]}",
        f"replaces 'explore' of {places[1]}",
    ]
    assert found.files == len(BUILT_IN) + 3


def test_equal_names_in_one_directory_are_a_warning(project: Path) -> None:
    _write(project / ".coterie/agents/a.md", "x")
    last = _write(project / ".coterie/agents/b.md", "x")
    found = load_definitions(project)
    assert found.get("x").source == last
    assert [problem.severity for problem in found.problems] == ["warning"]


def test_project_directory_can_be_changed_and_is_read_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_PROJECT_DIR", ".claude")
    _write(project / ".claude/agents/x.md", "x")
    found = load_definitions(project)
    assert (found.get("x").scope, found.problems) == ("project", ())


def test_unreadable_files_are_errors_and_the_others_stay(project: Path) -> None:
    agents = project / ".coterie/agents"
    _write(agents / "good.md", "good")
    (agents / "latin.md").write_bytes(b"---\nname: caf\xe9\n---\n")
    (agents / "loop.md").symlink_to("loop.md")
    (agents / "gone.md").symlink_to("nowhere.md")
    (agents / "large.md").write_bytes(b"-" * (MAX_BYTES + 1))
    os.mkfifo(agents / "pipe.md")
    found = load_definitions(project)
    assert "good" in found.by_name
    assert _errors(found) == [
        "gone.md: cannot be read: No such file or directory",
        "large.md: too large: 1,000,001 bytes, the limit is 1,000,000",
        "latin.md: not UTF-8: byte 0xe9 here; save the file as UTF-8",
        "loop.md: cannot be read: Too many levels of symbolic links",
        "pipe.md: not a regular file",
    ]
    assert next(problem.line for problem in found.problems if problem.path.name == "latin.md") == 2


def test_links_are_followed_and_a_cycle_is_searched_once(project: Path) -> None:
    agents = project / ".coterie/agents"
    _write(project / "shared/x.md", "x")
    agents.mkdir(parents=True)
    (agents / "team").symlink_to(project / "shared", target_is_directory=True)
    (agents / "sub").mkdir()
    (agents / "sub/back").symlink_to(agents, target_is_directory=True)
    found = load_definitions(project)
    assert found.get("x").source == agents / "team/x.md"
    assert _errors(found) == [f"back: the link leads to {agents}, which has already been searched"]


def test_readmes_hidden_files_and_other_files_are_skipped(project: Path) -> None:
    agents = project / ".coterie/agents"
    for name in ("README.md", ".#x.md", ".old/x.md", "x.txt", "x.md~"):
        _write(agents / name, "x")
    assert load_definitions(project).by_name.keys() == BUILT_IN
    _write(project / ".claude/agents", "x")
    assert _errors(load_definitions(project)) == ["agents: cannot be read: Not a directory"]


def test_one_file_or_one_directory_can_be_read_alone(tmp_path: Path) -> None:
    readme = _write(tmp_path / "README.md", "x")
    _write(tmp_path / "y.md", "y")
    assert load_path(readme).by_name.keys() == {"x"}
    assert load_path(tmp_path).by_name.keys() == {"y"}
