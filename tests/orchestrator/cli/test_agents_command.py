import json
import os
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.orchestrator.cli.command_runner import coterie, refusal

_run = partial(coterie, "agents")


@pytest.fixture(autouse=True)
def project(checkout: Path) -> Path:
    (checkout / ".coterie/agents").mkdir(parents=True)
    _write(checkout / ".coterie/agents/reviewer.md", "name: reviewer", "description: Reviews.", "tools: Read")
    return checkout


def _write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["---", *lines, "---", "Go.", ""]))


def test_list_groups_agent_types_by_directory_and_json_has_all_but_the_prompt(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    done = _run("list")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0] == "built-in"
    assert lines[-2] == "project  .coterie/agents"
    assert lines[-1].split() == ["reviewer", "inherit", "Read", "Reviews."]
    assert all(cell_len(line) <= 90 for line in lines)
    rows = {row["name"]: row for row in json.loads(_run("list", "--json").output)}
    reviewer = rows["reviewer"]
    assert " ".join(reviewer) == (
        "name description tools disallowed_tools model effort permission_mode max_turns skills memory background"
        " process isolation hooks mcp_servers color initial_prompt scope source"
    )
    assert (reviewer["name"], reviewer["tools"], reviewer["scope"]) == ("reviewer", ["Read"], "project")
    assert reviewer["source"] == str(project / ".coterie/agents/reviewer.md")
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


def test_check_exits_1_for_an_error_and_list_mentions_it(project: Path) -> None:
    assert refusal(_run("check", "nowhere")).startswith("nowhere cannot be read: No such file or directory; ")
    _write(project / ".coterie/agents/x.md", "name: x", "weight: 3")
    problem, *_, counts = _run("check", ".coterie").output.splitlines()
    assert problem.startswith(".coterie/agents/x.md:1: error: ")
    assert counts == "2 files, 1 agent: 1 error, 0 warnings, 1 note"
    done = _run("check", "--json", ".coterie")
    assert done.exit_code == 1
    report = json.loads(done.output)
    assert report["files"] == 2
    assert [row["name"] for row in report["definitions"]] == ["reviewer"]
    problems = [f"{row['path']}:{row['line']}: {row['severity']}" for row in report["problems"]]
    assert problems == [".coterie/agents/x.md:1: error", ".coterie/agents/x.md:3: note"]
    done = _run("list")
    assert (done.exit_code, "`coterie agents check`" in done.stderr) == (0, True)


def test_file_names_and_descriptions_cannot_control_the_terminal(project: Path) -> None:
    (Path(os.fsdecode(os.fsencode(project) + b"/.coterie/agents/\xff\x1b.md"))).write_text("")
    _write(project / ".coterie/agents/evil.md", "name: evil", 'description: "a\\e[2Jb"')
    for arguments in (["check"], ["check", "--json"], ["list"]):
        done = _run(*arguments)
        assert done.exit_code == (0 if arguments == ["list"] else 1)
        assert "\x1b" not in done.output
