"""`coterie run` as a shell runs it: results, refusals, signals, terminals, closed pipes and full disks."""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from coterie.agents.events.agent_events import Finished
from tests.orchestrator.pseudo_terminal import open_program
from tests.processes.project_shell import BYPASS, PATIENCE, ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = """
default:
  - text: I read the file.
    tools: [{Read: {file_path: numbers.txt}}]
  - text: I try it.
    tools: [{Bash: {command: "echo one two"}}]
  - text: "It said {{last_tool_result}}"
"""
SLEEPING = (
    SCRIPT
    + """
    tools: [{Bash: {command: "sleep 100"}}]
  - text: The end.
"""
)


@pytest.fixture
def place(place: ProjectShell, monkeypatch: pytest.MonkeyPatch) -> ProjectShell:
    """A project with a file, and a user without a key."""
    for name in filter(lambda name: name.startswith("ANTHROPIC_"), os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    place.write("numbers.txt", "1\n")
    return place


def run(place: ProjectShell, script: str, *arguments: str) -> tuple[str, ...]:
    """Return the arguments of a run whose model follows *script*."""
    return "run", "Go.", *place.model(script), *arguments


def ends(place: ProjectShell) -> list[str]:
    """Return the end reasons of the runs."""
    return [event.reason for event in place.events(Finished)]


def test_a_task_is_done_with_real_tools_and_its_steps_are_shown(place: ProjectShell) -> None:
    done = place.coterie(*run(place, SCRIPT, *BYPASS))
    assert (done.returncode, done.stdout) == (0, "I read the file.\nI try it.\nIt said one two\n")
    assert "Read(file_path='numbers.txt')  ok" in done.stderr
    assert "completed after 3 turns" in done.stderr


def test_accepted_edits_exclude_outside_and_protected_paths(place: ProjectShell) -> None:
    paths = ("new.txt", "../out.txt", ".git/hooks/pre-commit")
    calls = [f"{{Write: {{file_path: {path}, content: x}}}}" for path in paths]
    script = f"default: [{{tools: [{', '.join(calls)}, {{Bash: {{command: touch ran}}}}]}}, {{text: done}}]"
    done = place.coterie(*run(place, script, "--permission-mode", "acceptEdits"))
    assert done.returncode == 0
    assert (place.project / "new.txt").read_text() == "x"
    assert not (place.project.parent / "out.txt").exists()
    assert not (place.project / ".git").exists()
    assert not (place.project / "ran").exists()


def test_failed_run_exits_1_and_its_json_names_the_transcript(place: ProjectShell) -> None:
    command = place.command("run", "-", *place.model(SCRIPT), "--output-format", "json", "--max-turns", "1")
    done = subprocess.run(
        command, cwd=place.project, input="Is it one?\n", capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["reason"], summary["turns"]) == (1, "max_turns", 1)
    assert Path(summary["transcript"]) == place.session.agent_directory("main") / "transcript.jsonl"
    assert b"Is it one?" in conversation(place.session).prefix_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["Go."], 5, "no model is available; set ANTHROPIC_API_KEY, or pass --script FILE to run without a key"),
        (["Go.", "--script", "no.yaml"], 2, "the embedded server did not start: no.yaml: the script cannot be read: "),
        (["Go.", "--script", "../s.yaml", "--model", "claude-opus"], 2, "model: 'claude-opus' is not a known model"),
        (["--script", "../s.yaml"], 2, "no task"),
    ],
)
def test_invalid_run_is_refused_in_one_line(place: ProjectShell, arguments: list[str], code: int, line: str) -> None:
    place.write("../s.yaml", SCRIPT)
    done = place.coterie("run", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith(f"Error: {line}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_run_with_its_record(place: ProjectShell, number: signal.Signals, code: int) -> None:
    script = "default: [{text: First., tools: [{Read: {file_path: numbers.txt}}]}, {text: never, delay: 100}]"
    with place.start(*run(place, script)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "First.\n"
        process.send_signal(number)
        assert process.wait(20) == code
    assert b"First." in conversation(place.session).prefix_bytes()


def test_second_interrupt_ends_immediately(place: ProjectShell) -> None:
    """The first interrupt waits for a command that ignores it."""
    script = "default: [{text: Going., tools: [{Bash: {command: \"trap '' TERM INT; echo up > up; sleep 100\"}}]}]"
    with place.start(*run(place, script, *BYPASS)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "Going.\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "Traceback" not in process.stderr.read()


def test_at_a_terminal_it_asks_and_ctrl_c_ends_the_turn(place: ProjectShell) -> None:
    with open_program(place.command(*run(place, SLEEPING)), cwd=place.project, env=os.environ) as program:
        program.read_until("n  no")
        program.type("y")
        program.read_until("It said one two")
        program.read_until("sleep 100")
        program.type("s")
        program.read_until("Bash sleep 100")
        program.type("\x03")
        assert program.wait() == 130
        assert "cancelled after 3 turns" in program.output
        assert "Traceback" not in program.output
        assert program.output.rindex("\x1b[?25h") > program.output.rindex("\x1b[?25l")
    assert ends(place) == ["cancelled"]


def test_stream_and_transcript_match_their_schemas_and_the_logs_the_stream(place: ProjectShell) -> None:
    done = place.coterie(*run(place, SCRIPT, "--output-format", "stream-json", *BYPASS))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    transcript = (place.session.agent_directory("main") / "transcript.jsonl").read_bytes()
    records = [json.loads(line) for line in transcript.split(b"\n") if line]
    for name, found in (("events", lines), ("transcript", records)):
        schema = Draft202012Validator(json.loads((DOCS / f"{name}.schema.json").read_text()))
        for line in found:
            schema.validate(line)
    kinds = [line["kind"] for line in lines]
    assert (kinds[0], kinds[-1], kinds.count("finished")) == ("agent_changed", "agent_changed", 1)
    assert lines[-1]["state"] == "done"
    assert {"message", "replied", "text", "tool_started", "tool_ended"} < set(kinds)
    # Two processes write events at the same moment: the stream has them as they arrive, the log by time.
    logged = place.coterie("logs", "--json").stdout
    assert sorted(logged.splitlines()) == sorted(done.stdout.splitlines())


def test_closed_output_pipe_ends_the_run_with_its_record(place: ProjectShell) -> None:
    with place.start(*run(place, SLEEPING, "--output-format", "stream-json", *BYPASS)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "agent_changed"
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == ""
    assert ends(place) == ["cancelled"]


def test_failed_write_of_the_record_is_one_line(place: ProjectShell) -> None:
    """A limit on file size has the effect of a full disk."""
    done = subprocess.run(
        place.command(*run(place, SCRIPT, "-p", *BYPASS)),
        cwd=place.project,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000)),
    )
    assert done.returncode == 1
    assert "bytes were written; the disk may be full; correct this" in done.stderr
    assert done.stderr.count("\n") == 1
