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
def project(checkout: Path) -> Path:
    (checkout / ".claude/agents").mkdir(parents=True)
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check\x1b[2K"}]}]}
    (checkout / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    (checkout / ".claude/agents/reviewer.md").write_text(DEFINITION)
    return checkout


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


def test_hooks_need_approval_again_when_they_change(project: Path) -> None:
    assert runs(project) == [False, False]
    listed = coterie(project, "list")
    assert "settings.json  (not approved)" in listed.stdout
    assert "`coterie hooks approve`" in listed.stderr
    approved = coterie(project, "approve", "--yes")
    assert approved.returncode == 0
    assert "PreToolUse Bash (60 s): check\\x1b[2K\n" in approved.stdout, "nothing may hide in what is approved"
    assert "Stop (60 s): echo reviewed\n" in approved.stdout
    assert runs(project) == [True, True]
    assert coterie(project, "approve").returncode == 0
    path = project / ".claude/agents/reviewer.md"
    path.write_text(path.read_text().replace("echo reviewed", "rm -rf ~"))
    assert runs(project) == [True, False]


def test_approve_without_a_terminal_needs_the_yes_option(project: Path) -> None:
    refused = coterie(project, "approve")
    assert refused.returncode == ExitCode.USAGE
    assert "--yes" in refused.stderr
    assert runs(project) == [False, False]


def test_approve_asks_at_a_terminal(project: Path) -> None:
    for keys, code, expected in (("n\n", ExitCode.APPROVAL_REFUSED, False), ("y\n", ExitCode.DONE, True)):
        with open_program(command("hooks", "approve"), cwd=project, env=os.environ) as program:
            program.read_until(" run from now on? [y/N]: ")
            program.type(keys)
            assert program.wait() == code
        assert runs(project) == [expected, expected]


def test_list_exits_1_for_a_problem_in_a_hook_file(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"hooks":\n{"PreToolUze": []}}')
    listed = coterie(project, "list")
    assert listed.returncode == ExitCode.FAILED
    assert ".claude/settings.json:2: " in listed.stderr
    assert "did you mean PreToolUse?" in listed.stderr
    [flaw] = json.loads(coterie(project, "list", "--json").stdout)["flaws"]
    assert "PreToolUze" in flaw


def test_events_of_other_products_are_notes_and_not_problems(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"hooks": {"Notification": [], "Setup": []}}')
    listed = coterie(project, "list")
    assert listed.returncode == ExitCode.DONE
    assert "Notification, Setup" in listed.stderr
    assert len(json.loads(coterie(project, "list", "--json").stdout)["notes"]) == 1


def test_list_without_hooks_is_one_line(checkout: Path) -> None:
    assert coterie(checkout, "list").stdout.count("\n") == 1


def test_project_settings_cannot_disable_the_hooks_of_the_user(project: Path) -> None:
    (project / ".coterie").mkdir()
    (project / ".coterie/settings.toml").write_text("[hooks]\nenabled = false\n")
    refused = coterie(project, "list")
    assert refused.returncode == ExitCode.USAGE
    assert "hooks.enabled" in refused.stderr
