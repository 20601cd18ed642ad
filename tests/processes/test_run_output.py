"""Output of `coterie run`: at a terminal, with a closed pipe, and on a full disk."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from coterie.agents.events.agent_events import Finished
from coterie.orchestrator.events.session_reader import read_session
from tests.orchestrator.pseudo_terminal import open_program

pytestmark = pytest.mark.slow

SCRIPT = """
default:
  - text: I try it.
    tools: [{Bash: {command: "echo one two"}}]
  - text: "It said {{last_tool_result}}"
    tools: [{Bash: {command: "sleep 100"}}]
  - text: The end.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", "run", "Go.", "--script", "../script.yaml", *arguments]


def environment(project: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    return {**kept, "COTERIE_HOME": str(project.parent / "home"), "NO_COLOR": "1"}


def ends(project: Path) -> list[Finished]:
    """Return the end reasons of the runs of the only session."""
    [directory] = project.parent.glob("home/projects/*/sessions/*")
    return [event.event for event in read_session(directory) if isinstance(event.event, Finished)]


def test_at_a_terminal_it_asks_and_ctrl_c_ends_the_turn(project: Path) -> None:
    with open_program(command(), cwd=project, env=environment(project)) as program:
        program.read_until("n  no")
        program.type("y")
        program.read_until("It said one two")
        program.read_until("sleep 100")
        program.type("s")
        program.read_until("Bash sleep 100")
        program.type("\x03")
        assert program.wait() == 130
        assert "cancelled after 2 turns" in program.output
        assert "Traceback" not in program.output
        assert program.output.rindex("\x1b[?25h") > program.output.rindex("\x1b[?25l")
    assert [end.reason for end in ends(project)] == ["cancelled"]


def test_ctrl_c_cancels_a_question(project: Path) -> None:
    with open_program(command(), cwd=project, env=environment(project)) as program:
        program.read_until("n  no")
        program.type("\x03")
        assert program.wait() == 130
        assert "Traceback" not in program.output
    assert [end.reason for end in ends(project)] == ["cancelled"]


def test_stream_of_a_run_matches_its_schema_and_the_logs(project: Path) -> None:
    (project.parent / "script.yaml").write_text(SCRIPT.replace("sleep 100", "exit 3"))
    arguments = command("--output-format", "stream-json", "--permission-mode", "bypassPermissions")
    done = subprocess.run(arguments, cwd=project, env=environment(project), capture_output=True, check=True)
    schema = json.loads((Path(__file__).parents[2] / "docs/events.schema.json").read_text())
    lines = done.stdout.splitlines()
    for line in lines:
        Draft202012Validator(schema).validate(json.loads(line))
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (kinds[0], kinds[-1], kinds.count("finished")) == ("agent_changed", "agent_changed", 1)
    assert json.loads(lines[-1])["state"] == "done"
    assert {"message", "replied", "text", "tool_started", "tool_ended"} < set(kinds)
    logs = [sys.executable, "-P", "-m", "coterie", "logs", "--json"]
    again = subprocess.run(logs, cwd=project, env=environment(project), capture_output=True, check=True)
    assert again.stdout == done.stdout


def test_closed_output_pipe_ends_the_run_with_its_record(project: Path) -> None:
    arguments = command("--output-format", "stream-json", "--permission-mode", "bypassPermissions")
    with subprocess.Popen(
        arguments, cwd=project, env=environment(project), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "agent_changed"
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == b""
    assert [end.reason for end in ends(project)] == ["cancelled"]


def test_failed_write_of_the_record_is_one_line(project: Path) -> None:
    """A limit on file size has the effect of a full disk."""
    done = subprocess.run(
        command("-p", "--permission-mode", "bypassPermissions"),
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000)),
    )
    assert done.returncode == 1
    assert done.stderr.endswith("bytes were written; the disk may be full\n")
    assert done.stderr.count("\n") == 1


def test_second_interrupt_ends_immediately(project: Path) -> None:
    """The first interrupt waits for a command that ignores it."""
    (project.parent / "script.yaml").write_text(
        "default: [{text: Going., tools: [{Bash: {command: \"trap '' TERM INT; echo up > up; sleep 100\"}}]}]"
    )
    with subprocess.Popen(
        command("--permission-mode", "bypassPermissions"),
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "Going.\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "Traceback" not in process.stderr.read()
