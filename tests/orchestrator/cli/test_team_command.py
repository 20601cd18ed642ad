"""`coterie team check`, and how `coterie run` takes the file of a team: before anything starts."""

import json
import shutil
from pathlib import Path

import pytest

from tests.orchestrator.cli.command_runner import coterie, printed

EXAMPLE = Path(__file__).parents[3] / "docs/examples/team.toml"


@pytest.fixture(autouse=True)
def project(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a checkout with a team, a terminal of 80 columns and no API key."""
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copy(EXAMPLE, checkout)
    return checkout


def test_check_shows_members_and_tasks_and_json_the_whole_team() -> None:
    done = coterie("team", "check", "team.toml")
    assert (done.exit_code, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == "team careful-change: lead coordinator, opus; 4 members, 4 tasks"
    assert lines[1].split() == ["member", "type", "model", "options", "prompt"]
    assert lines[2].startswith("  scout    explore   -       -")
    row = " ".join(lines[3].split())
    assert row == "builder worker sonnet plan by the lead, $2.50, memory project (waits for messages)"
    assert lines[7].split() == ["task", "id", "owner", "waits", "for", "subject"]
    assert lines[9].split() == ["2", "build", "builder", "map", "Make", "the", "change"]
    report = printed("team", "check", "team.toml")
    assert report["flaws"] == []
    options = {"budget_usd": "2.50", "memory": "project", "worktree": False, "process": None}
    builder = {"name": "builder", "type": "worker", "model": "sonnet", "prompt": "", **options}
    assert report["team"]["members"][1] == {**builder, "plan": {"by": "lead", "paths": []}}
    assert " ".join(report["team"]["tasks"][1]) == "key subject description owner blocked_by"
    assert (report["team"]["tasks"][1]["key"], report["team"]["tasks"][1]["blocked_by"]) == ("build", ["map"])


def test_check_prints_every_problem_and_exits_2(project: Path) -> None:
    (project / "team.toml").write_text('[[members]]\nname = "a/b"\ntyp = "explore"\n')
    done = coterie("team", "check", "team.toml")
    assert (done.exit_code, done.stdout) == (2, "")
    name, key, count = done.stderr.splitlines()
    assert (name[:13], "'a/b'" in name) == ("team.toml:2: ", True)
    assert (key[:13], "'typ'" in key, key.endswith("did you mean type?")) == ("team.toml:3: ", True, True)
    assert count == "2 problems"
    done = coterie("team", "check", "team.toml", "--json")
    assert (done.exit_code, done.stderr) == (2, "")
    found = json.loads(done.stdout)
    assert (found["team"], [flaw["line"] for flaw in found["flaws"]]) == (None, [2, 3])


def test_a_team_file_cannot_control_the_terminal(project: Path) -> None:
    member = '[[members]]\nname = "a"\nprompt = "\\u001b[31m"\nworktree = true\nprocess = "own"\n'
    (project / "team.toml").write_text(f'name = "\\u001b[2J"\n{member}')
    shown = coterie("team", "check", "team.toml").output
    assert ("\x1b" in shown, "worktree, own process" in shown) == (False, True)
    (project / "team.toml").write_text('[[members]]\nname = "\\u001b[2J"\n')
    assert "\x1b" not in coterie("team", "check", "team.toml").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--team", "none.toml"], "none.toml:1: "),
        (["--team", "."], ".:1: "),
        (["--team", "flawed.toml"], "flawed.toml:2: "),
        (["--coordinator", "--agent", "worker"], "--agent worker"),
        (["--team", "team.toml", "--agent", "worker"], "lead of team.toml has type coordinator"),
        (["--team", "led.toml", "--coordinator"], "lead of led.toml has type plan"),
    ],
)
def test_run_refuses_a_wrong_team_before_it_starts(project: Path, arguments: list[str], words: str) -> None:
    (project / "flawed.toml").write_text('[lead]\nagent = "scuot"\n')
    (project / "led.toml").write_text('[lead]\nagent = "plan"\n')
    done = coterie("run", "Go.", *arguments)
    assert done.exit_code == 2
    assert words in done.output
    assert not (project.parent / "home").exists(), "a session was started"
