import os
from pathlib import Path

import pytest

from coterie.agents.definitions.definition_files import MAX_BYTES
from coterie.agents.definitions.store import AgentDefinitions, load_definitions, load_path
from coterie.errors import ConfigInvalid

BUILT_IN = {"general-purpose", "explore", "plan", "worker", "verifier", "coordinator"}


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, with a separate home directory."""
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
