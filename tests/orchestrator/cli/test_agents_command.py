import json
import os
from pathlib import Path

import pytest
from click.testing import Result
from rich.cells import cell_len

from tests.orchestrator.cli.command_runner import coterie


@pytest.fixture(autouse=True)
def project(checkout: Path) -> Path:
    """The current directory: a checkout with one definition of its own."""
    (checkout / ".coterie/agents").mkdir(parents=True)
    _write(checkout / ".coterie/agents/reviewer.md", "name: reviewer", "description: Reviews.", "tools: Read")
    return checkout


def _write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["---", *lines, "---", "Go.", ""]))


def _run(*arguments: str) -> Result:
    return coterie("agents", *arguments)


def test_list_groups_agent_types_by_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    done = _run("list")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0] == "built-in"
    assert lines[-2] == "project  .coterie/agents"
    assert lines[-1].split() == ["reviewer", "inherit", "Read", "Reviews."]
    assert all(cell_len(line) <= 90 for line in lines)


def test_a_description_cannot_control_the_terminal(project: Path) -> None:
    _write(project / ".coterie/agents/evil.md", "name: evil", 'description: "a\\e[2Jb\\nc \U0001f600"')
    output = _run("list").output
    assert "a\ufffd[2Jb c \U0001f600" in output
    assert "\x1b" not in output


def test_list_json_has_everything_but_the_prompt(project: Path) -> None:
    rows = {row["name"]: row for row in json.loads(_run("list", "--json").output)}
    assert rows["reviewer"] == {
        "name": "reviewer",
        "description": "Reviews.",
        "tools": ["Read"],
        "disallowed_tools": [],
        "model": None,
        "effort": None,
        "permission_mode": None,
        "max_turns": None,
        "skills": [],
        "memory": None,
        "background": False,
        "process": "own",
        "isolation": None,
        "hooks": [],
        "mcp_servers": None,
        "color": None,
        "initial_prompt": None,
        "scope": "project",
        "source": str(project / ".coterie/agents/reviewer.md"),
    }
    assert rows["explore"]["scope"] == "built-in"


def test_check_allows_warnings_and_notes(project: Path) -> None:
    done = _run("check")
    assert (done.exit_code, done.output) == (0, "7 files, 7 agents: 0 errors, 0 warnings, 0 notes\n")
    _write(project / ".coterie/agents/x.md", "name: x", "description: y", "weight: 3", "maxTurns: many")
    done = _run("check")
    assert done.exit_code == 0
    first, second, counts = done.output.splitlines()
    assert first.startswith(".coterie/agents/x.md:4: note: ")
    assert second.startswith(".coterie/agents/x.md:5: warning: ")
    assert counts == "8 files, 8 agents: 0 errors, 1 warning, 1 note"


def test_check_exits_1_for_a_file_without_an_agent_type(project: Path) -> None:
    _write(project / "one.md", "description: y")
    done = _run("check", "one.md")
    assert done.exit_code == 1
    problem, counts = done.output.splitlines()
    assert problem.startswith("one.md:1: error: ")
    assert counts == "1 file, 0 agents: 1 error, 0 warnings, 0 notes"


def test_check_json_has_file_line_and_severity_and_list_mentions_errors(project: Path) -> None:
    _write(project / ".coterie/agents/x.md", "name: x", "weight: 3")
    done = _run("check", "--json", ".coterie")
    assert done.exit_code == 1
    report = json.loads(done.output)
    assert report["files"] == 2
    assert [row["name"] for row in report["definitions"]] == ["reviewer"]
    path = ".coterie/agents/x.md"
    assert [(row["path"], row["line"], row["severity"]) for row in report["problems"]] == [
        (path, 1, "error"),
        (path, 3, "note"),
    ]
    done = _run("list")
    assert (done.exit_code, "`coterie agents check`" in done.stderr) == (0, True)


def test_check_of_a_path_that_does_not_exist_is_a_usage_error() -> None:
    done = _run("check", "nowhere")
    assert done.exit_code == 2
    assert done.output.startswith("Error: nowhere: No such file or directory; ")
    assert done.output.count("\n") == 1


def test_a_file_name_that_is_not_text_is_escaped(project: Path) -> None:
    (Path(os.fsdecode(os.fsencode(project) + b"/.coterie/agents/\xff\x1b.md"))).write_text("")
    for arguments in (["check"], ["check", "--json"], ["list"]):
        done = _run(*arguments)
        assert done.exit_code == (0 if arguments == ["list"] else 1)
        assert "\x1b" not in done.output
