"""`coterie hooks` over the hooks of a project and of an agent type."""

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from coterie.orchestrator.cli.output import ExitCode
from tests.orchestrator.cli.command_runner import coterie, printed, refusal
from tests.orchestrator.pseudo_terminal import open_program

hooks = partial(coterie, "hooks")
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


def runs() -> list[bool]:
    return [row["runs"] for row in printed("hooks", "list")["hooks"]]


def test_hooks_need_approval_again_when_they_change(project: Path) -> None:
    listed = hooks("list")
    assert "settings.json  (not approved)" in listed.stdout
    assert "`coterie hooks approve`" in listed.stderr
    assert "--yes" in hooks("approve").stderr, "there is no terminal to ask at"
    assert runs() == [False, False]
    approved = hooks("approve", "--yes")
    assert approved.exit_code == 0
    assert "PreToolUse Bash (60 s): check\\x1b[2K\n" in approved.stdout, "nothing may hide in what is approved"
    assert "Stop (60 s): echo reviewed\n" in approved.stdout
    assert runs() == [True, True]
    assert hooks("approve").exit_code == 0
    path = project / ".claude/agents/reviewer.md"
    path.write_text(path.read_text().replace("echo reviewed", "rm -rf ~"))
    assert runs() == [True, False]


@pytest.mark.parametrize(
    ("keys", "code", "is_approved"),
    [("n\n", ExitCode.APPROVAL_REFUSED, False), ("y\n", ExitCode.DONE, True)],
)
def test_approve_asks_at_a_terminal(project: Path, keys: str, code: ExitCode, is_approved: bool) -> None:
    command = [sys.executable, "-P", "-m", "coterie", "hooks", "approve"]
    with open_program(command, cwd=project, env=os.environ) as program:
        program.read_until(" run from now on? [y/N]: ")
        program.type(keys)
        assert program.wait() == code
    assert runs() == [is_approved, is_approved]


def test_list_exits_1_for_a_problem_in_a_hook_file(project: Path) -> None:
    (project / ".claude/settings.json").write_text('{"hooks":\n{"PreToolUze": []}}')
    listed = hooks("list")
    assert listed.exit_code == ExitCode.FAILED
    assert ".claude/settings.json:2: " in listed.stderr
    assert "did you mean PreToolUse?" in listed.stderr
    [flaw] = json.loads(hooks("list", "--json").stdout)["flaws"]
    assert "PreToolUze" in flaw


def test_project_settings_cannot_disable_the_hooks_of_the_user(project: Path) -> None:
    (project / ".coterie").mkdir()
    (project / ".coterie/settings.toml").write_text("[hooks]\nenabled = false\n")
    assert "hooks.enabled" in refusal(hooks("list"))
