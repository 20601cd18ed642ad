"""`coterie logs` on sessions with real logs and transcripts."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from coterie.agents.events.agent_events import Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.clock import Clock
from coterie.session_directory import SessionDirectory
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer, reply

logs = partial(coterie, "logs")


@pytest.fixture
def session(session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "1\n2\n3\n4\n5"}]}
    with open_writer(session.directory) as agent:
        agent.write_event(STARTED)
        agent.write_text("user", "the task")
        agent.write_event(TextEmitted(turn=1, text="I lo"))
        agent.write_event(Retrying(error="529 overloaded", seconds=2.0))
        agent.put("assistant", call, reply())
        agent.write_event(ToolStarted(id="t1", name="Read"))
        agent.write_event(ToolEnded(id="t1", name="Read", is_error=False, seconds=0.25, characters=9))
        agent.put("user", result)
        agent.write_text("assistant", "All is well. " * 6, reply(2))
        agent.write_event(FINISHED)
    return session


def test_text_lists_whole_events_in_wrapped_lines(session: SessionDirectory) -> None:
    entries = [line[len("00:00:00 main  ") :] for line in logs(session.id[:-2]).stdout.splitlines()]
    spent = "5 tokens in, 0 % of them from cache, 7 out, $0.010000,"
    assert entries == [
        "started: m, default, in /p",
        "user: the task",
        "model call failed: 529 overloaded; retrying in 2.0 s",
        "calls Read(file_path='a.py')",
        f"turn 1: {spent}",
        "1.0 s",
        "Read  ok  0.2 s",
        "result: 1",
        "2",
        "3",
        "... 2 more lines",
        "says: All is well. All is well. All is well. All is well. All is",
        "well. All is well.",
        f"turn 2: {spent}",
        "1.0 s",
        "finished: completed after 1 turn; 0 tokens in, 0 % of them from",
        "cache, 0 out, $0.100000",
    ]


def test_default_is_the_newest_session_of_this_directory(session: SessionDirectory, tmp_path: Path) -> None:
    later = Clock()
    later.advance(60)
    SessionDirectory.create(tmp_path / "other", later, task="t", model="m")
    lines = [msgspec.json.decode(line) for line in logs("--json").stdout.splitlines()]
    assert " ".join(line["kind"] for line in lines) == (
        "started message text retrying message replied tool_started tool_ended message message replied finished"
    )
    assert {line["session"] for line in lines} == {session.id}
    assert SessionDirectory.find(session.id).starts == 1, "reading is not a start"


def test_agent_option_selects_one_agent_or_suggests_a_name(session: SessionDirectory) -> None:
    with open_writer(session.directory, "scout") as scout:
        scout.write_text("user", "look around")
    assert logs("--agent", "scout").stdout.endswith("scout  user: look around\n")
    wrong = logs("--agent", "skout")
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 1)
    assert wrong.output.endswith("'skout'; did you mean scout?\n")


def test_text_of_the_model_cannot_control_the_terminal(session: SessionDirectory) -> None:
    with open_writer(session.directory, "evil\x1b[2J") as agent:
        agent.write_text("user", "a\x1b]0;title\x07b\x1b[2Jc\x9b1md\u202ee\rf\x00g")
        agent.put("assistant", {"type": "tool_use", "id": "t", "name": "Ba\x00sh", "input": {"k\x07": "\x1b[2J"}})
    shown = logs().stdout
    assert not {character for character in shown if not character.isprintable()} - {"\n"}
    assert "user: abc1mde\n" in shown
    assert r"calls Bash(k='\x1b[2J')" in shown


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", "logs", *arguments]


@pytest.mark.slow
def test_following_continues_over_a_resume(session: SessionDirectory) -> None:
    with open_writer(session.directory) as agent:
        agent.write_event(STARTED)
        with subprocess.Popen(command("-f", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(13)]
            assert msgspec.json.decode(seen[-1])["kind"] == "started"
            agent.write_event(FINISHED)
            assert msgspec.json.decode(process.stdout.readline())["kind"] == "finished"
            assert process.wait(10) == 0


@pytest.mark.slow
def test_an_interrupted_follower_exits_130_without_a_traceback(session: SessionDirectory) -> None:
    with (
        open_writer(session.directory) as agent,
        subprocess.Popen(command("-f"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        agent.write_event(STARTED)
        assert process.stdout is not None
        assert process.stderr is not None
        while b"start 1" not in (line := process.stdout.readline()) and b"finished" not in line:
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_an_encoding_without_a_character_causes_no_traceback(session: SessionDirectory) -> None:
    with open_writer(session.directory) as agent:
        agent.write_text("user", "snow ☃ \ud800".encode(errors="replace").decode())
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command(), env=environment, capture_output=True, check=True)
    assert b"user: snow ? ?\n" in done.stdout
