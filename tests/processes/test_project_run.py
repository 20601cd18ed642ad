"""`coterie run` in a project with settings, instruction files and agent types."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.pseudo_terminal import open_program
from tests.processes.test_run_output import command, environment

pytestmark = pytest.mark.slow

SCRIPT = """
default:
  - tools:
      - Bash: {command: "echo from the shell"}
      - Write: {file_path: new.txt, content: new}
      - Read: {file_path: notes.txt}
  - text: "{{first_user_text}} | {{tool_result.0}} | {{tool_result.1}} | {{tool_result.2}}"
"""

CLERK = """---
name: clerk
description: Reads and counts.
tools: Read, Bash(wc:*)
model: haiku
maxTurns: 5
---
You are a clerk.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    project = tmp_path / "project"
    (project / ".coterie/agents").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "notes.txt").write_text("a note\n")
    (project / "CLAUDE.md").write_text("Be brief. See @../outside.md\n")
    (tmp_path / "outside.md").write_text("Words from outside.\n")
    (project / ".coterie/settings.toml").write_text(
        '[permissions]\nallow = ["Bash(echo:*)"]\ndeny = ["Read(notes.txt)"]\n'
    )
    (project / ".coterie/agents/clerk.md").write_text(CLERK)
    return project


def events(project: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        command("--output-format", "stream-json", *arguments),
        cwd=project,
        env=environment(project),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def kind(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == name]


def test_settings_and_instruction_files_of_the_project_apply(project: Path) -> None:
    seen = events(project)
    [finished] = kind(seen, "finished")
    context, shell, written, read = finished["result"].split(" | ")
    assert "Be brief." in context
    assert "Words from outside." not in context
    assert shell == "from the shell"
    assert written.startswith("Write needs the user's permission")
    assert read == "The rule Read(notes.txt) denies this call."
    assert [(event["tool"], event["verdict"], event["by"]) for event in kind(seen, "decided")] == [
        ("Bash", "allowed", "Bash(echo:*)"),
        ("Write", "denied", "default"),
        ("Read", "denied", "Read(notes.txt)"),
    ]
    [noticed] = kind(seen, "noticed")
    assert "outside.md" in noticed["reason"]


def test_file_rules_and_overrides_are_in_the_prompt(project: Path) -> None:
    (project / ".claude/rules/web").mkdir(parents=True)
    (project / ".claude/rules/web/style.md").write_text("---\npaths: web/**\n---\nNo tabs.\n")
    (project / "agents.md").write_text("Spelt small.\n")
    (project / "AGENTS.override.md").write_text("Mine alone.\n")
    [finished] = kind(events(project), "finished")
    assert ' for="web/**">\nNo tabs.\n' in finished["result"]
    assert "Mine alone." in finished["result"]
    assert "Spelt small." not in finished["result"]


def test_a_bare_run_reads_no_instruction_files(project: Path) -> None:
    [finished] = kind(events(project, "--bare"), "finished")
    assert "Be brief." not in finished["result"]


def test_agent_type_keeps_its_model_and_limits_when_resumed(project: Path) -> None:
    seen = events(project, "--agent", "clerk", "--permission-mode", "bypassPermissions")
    [started], [finished] = kind(seen, "started"), kind(seen, "finished")
    assert (started["definition"], started["model"]) == ("clerk", "claude-haiku-5-5")
    _, shell, written, read = finished["result"].split(" | ")
    assert shell == written == "Agents of the type clerk may not do this."
    assert read == "The rule Read(notes.txt) denies this call."
    resume = ["resume", started["session"], "Again."]
    again = subprocess.run(
        [*command()[:4], *resume, "--script", "../script.yaml", "--output-format", "json"],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(again.stdout)["model"] == "claude-haiku-5-5"


def test_too_small_budget_is_reported_before_any_spending(project: Path) -> None:
    done = subprocess.run(
        command("--max-budget-usd", "0.01"),
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "$0.0000 of $0.01 are spent, and the next call may cost up to $0.1" in done.stderr


def test_at_a_terminal_a_file_from_outside_is_asked_about_once(project: Path) -> None:
    (project.parent / "script.yaml").write_text('default: [{text: "{{first_user_text}}", times: always}]')
    with open_program(command(), cwd=project, env=environment(project)) as program:
        program.read_until("outside.md. Allow it? [y/N]")
        program.type("y\n")
        program.read_until("Words from outside.")
        assert program.wait() == 0
    with open_program(command(), cwd=project, env=environment(project)) as program:
        program.read_until("Words from outside.")
        assert program.wait() == 0
        assert "Allow it?" not in program.output


MAILED = """
default:
  - tools: [{Bash: {command: "while [ ! -e go ]; do sleep 0.02; done; echo went"}}]
  - text: "heard {{last_user_text}}"
"""


def coterie(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command()[:4], *arguments],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_run_gets_messages_that_its_user_sends(project: Path) -> None:
    (project.parent / "script.yaml").write_text(MAILED)
    run = command("--output-format", "stream-json", "--permission-mode", "bypassPermissions")
    with subprocess.Popen(run, cwd=project, env=environment(project), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = map(json.loads, process.stdout)
        session = next(event["session"] for event in told if event["kind"] == "tool_started")
        sent = coterie(project, "mail", "send", "--to", "main", "Use <tabs>.")
        assert sent.returncode == 0, sent.stderr
        busy = coterie(project, "resume", session, "--script", "../script.yaml")
        assert busy.stderr.startswith(f"Error: session: {session} is already running in process ")
        (project / "go").touch()
        rest = list(told)
    [finished] = kind(rest, "finished")
    assert finished["result"].startswith('heard <message from="user" sender="human" kind="message" id="')
    assert "Use &lt;tabs&gt;." in finished["result"]
    assert len(kind(rest, "delivered")) == 1
    late = coterie(project, "mail", "send", "--to", "main", "Too late?")
    assert late.returncode == 2
    assert "has ended" in late.stderr
