"""`coterie run` as a shell runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.loop.conversation.transcript import load_transcript

pytestmark = pytest.mark.slow

SCRIPT = """
default:
  - text: I read the file.
    tools:
      - Read: {file_path: numbers.py}
  - text: I try it.
    tools:
      - Bash: {command: "python3 -c 'import numbers_ as n; print(n.mean([1, 2, 3]))'"}
  - text: "It said {{last_tool_result}}"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/numbers.py").write_text("x = 1\n")
    (tmp_path / "project/numbers_.py").write_text("def mean(xs):\n    return sum(xs) / len(xs) + 1\n")
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return tmp_path / "project"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", "run", *arguments]


def environment(project: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    return {**kept, "COTERIE_HOME": str(project.parent / "home")}


def run(project: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=project,
        env=environment(project),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_task_is_done_with_real_tools_and_its_steps_are_shown(project: Path) -> None:
    done = run(project, "Is mean right?", "--script", "../script.yaml", "--permission-mode", "bypassPermissions")
    assert (done.returncode, done.stdout) == (0, "I read the file.\nI try it.\nIt said 3.0\n")
    assert "Read(file_path='numbers.py')  ok" in done.stderr
    assert "completed after 3 turns" in done.stderr


def test_accepted_edits_exclude_outside_and_protected_paths(project: Path) -> None:
    calls = ["{Write: {file_path: new.txt, content: x}}", "{Write: {file_path: ../out.txt, content: x}}"]
    calls += ["{Write: {file_path: .git/hooks/pre-commit, content: x}}", "{Bash: {command: touch ran}}"]
    script = f"default: [{{tools: [{', '.join(calls)}]}}, {{text: done}}]"
    (project.parent / "script.yaml").write_text(script)
    done = run(project, "Write.", "--script", "../script.yaml", "--permission-mode", "acceptEdits")
    assert done.returncode == 0
    assert (project / "new.txt").read_text() == "x"
    assert not (project.parent / "out.txt").exists()
    assert not (project / ".git").exists()
    assert not (project / "ran").exists()


def test_json_names_the_session_and_its_transcript_holds_the_run(project: Path) -> None:
    done = run(project, "-", "--script", "../script.yaml", "--output-format", "json", stdin="Is mean right?\n")
    summary: dict[str, Any] = json.loads(done.stdout)
    assert (summary["reason"], summary["turns"]) == ("completed", 3)
    conversation = load_transcript(Path(summary["transcript"])).conversation
    assert conversation is not None
    assert b"Is mean right?" in conversation.prefix_bytes()
    assert Path(summary["transcript"]).is_relative_to(project.parent / "home")


def test_a_failed_run_exits_with_one(project: Path) -> None:
    done = run(project, "Go.", "--script", "../script.yaml", "--max-turns", "1")
    assert done.returncode == 1
    assert "max_turns after 1 turn" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["Go."], 5, "no model is available; set ANTHROPIC_API_KEY, or pass --script FILE to run without a key"),
        (["Go.", "--script", "no.yaml"], 2, "the embedded server did not start: no.yaml: cannot be read: No such file"),
        (
            ["Go.", "--script", "../script.yaml", "--model", "claude-opus"],
            2,
            "model: 'claude-opus' is not a known model",
        ),
        (["--script", "../script.yaml"], 2, "no task"),
    ],
)
def test_invalid_run_is_refused_in_one_line(project: Path, arguments: list[str], code: int, line: str) -> None:
    done = run(project, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith(f"Error: {line}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_run_with_its_record(project: Path, number: signal.Signals, code: int) -> None:
    script = project.parent / "script.yaml"
    script.write_text("default: [{text: First., tools: [{Read: {file_path: numbers.py}}]}, {text: never, delay: 100}]")
    with subprocess.Popen(
        command("Go.", "--script", str(script)),
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "First.\n"
        process.send_signal(number)
        assert process.wait(20) == code
    [transcript] = (project.parent / "home").glob("projects/*/sessions/*/agents/main/transcript.jsonl")
    conversation = load_transcript(transcript).conversation
    assert conversation is not None
    assert b"First." in conversation.prefix_bytes()
