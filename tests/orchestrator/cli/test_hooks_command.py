"""`coterie hooks`, as a shell runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.orchestrator.cli.output import ExitCode
from tests.orchestrator.pseudo_terminal import open_program

DEFINITION = """---
name: reviewer
description: Reviews.
hooks:
  Stop:
    - hooks:
        - type: command
          command: echo reviewed
---
You review.
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    project = tmp_path / "project"
    (project / ".claude/agents").mkdir(parents=True)
    (project / ".git").mkdir()
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check\x1b[2K"}]}]}
    (project / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    (project / ".claude/agents/reviewer.md").write_text(DEFINITION)
    return project


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", *arguments]


def coterie(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("hooks", *arguments),
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def runs(project: Path) -> list[bool]:
    return [row["runs"] for row in json.loads(coterie(project, "list", "--json").stdout)["hooks"]]


def test_a_project_has_to_be_approved_once_and_again_when_it_changes(project: Path) -> None:
    assert runs(project) == [False, False]
    listed = coterie(project, "list")
    assert "settings.json  (not approved)" in listed.stdout
    assert "review and approve them with `coterie hooks approve`" in listed.stderr
    approved = coterie(project, "approve", "--yes")
    assert approved.returncode == 0
    assert "PreToolUse Bash (60 s): check\\x1b[2K\n" in approved.stdout, "nothing may hide in what is approved"
    assert "Stop (60 s): echo reviewed\n" in approved.stdout
    assert runs(project) == [True, True]
    assert coterie(project, "approve").stdout == "there is nothing to approve\n"
    path = project / ".claude/agents/reviewer.md"
    path.write_text(path.read_text().replace("echo reviewed", "rm -rf ~"))
    assert runs(project) == [True, False]


def test_nothing_is_approved_where_nobody_can_be_asked(project: Path) -> None:
    refused = coterie(project, "approve")
    assert refused.returncode == ExitCode.USAGE
    assert refused.stderr == "Error: nobody can be asked here; --yes approves what is shown\n"
    assert runs(project) == [False, False]


def test_at_a_terminal_it_asks(project: Path) -> None:
    for keys, code, expected in (("n\n", ExitCode.APPROVAL_REFUSED, False), ("y\n", ExitCode.DONE, True)):
        with open_program(command("hooks", "approve"), cwd=project, env=os.environ) as program:
            program.read_until("Let these commands run from now on? [y/N]: ")
            program.type(keys)
            assert program.wait() == code
        assert runs(project) == [expected, expected]


def test_flaws_are_listed_and_end_with_one(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"hooks":\n{"PreToolUze": []}}')
    listed = coterie(project, "list")
    assert listed.returncode == ExitCode.FAILED
    assert ".claude/settings.json:2: unknown event 'PreToolUze'; did you mean PreToolUse?" in listed.stderr
    [flaw] = json.loads(coterie(project, "list", "--json").stdout)["flaws"]
    assert "PreToolUze" in flaw


def test_events_of_other_products_are_named_and_are_no_flaw(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"hooks": {"Notification": [], "Setup": []}}')
    listed = coterie(project, "list")
    assert listed.returncode == ExitCode.DONE
    assert "these events do not exist here, so their hooks do not run: Notification, Setup" in listed.stderr
    assert len(json.loads(coterie(project, "list", "--json").stdout)["notes"]) == 1


def test_without_any_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    assert coterie(tmp_path, "list").stdout == "there are no hooks\n"


def test_settings_of_a_project_cannot_switch_the_users_hooks_off(project: Path) -> None:
    (project / ".coterie").mkdir()
    (project / ".coterie/settings.toml").write_text("[hooks]\nenabled = false\n")
    refused = coterie(project, "list")
    assert refused.returncode == ExitCode.USAGE
    assert "hooks.enabled may not be false in a project" in refused.stderr
