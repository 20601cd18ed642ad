"""`coterie logs` on sessions with real files: events, `--rendered`, `--layers` and `--dropped`."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from coterie.agents.events.agent_events import Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.agents.events.layer_events import BreakerTripped, NotesUpdated, ResultsCleared, ResultsStored
from coterie.agents.events.root_events import CleanedUp
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import Boundary, ReplyRecord, UserTextRecord
from coterie.agents.loop.model.usage import Usage
from coterie.clock import Clock
from coterie.memory.compaction.result_clearing import clear_results
from coterie.session_directory import SessionDirectory
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.session_writer import COMPACTED, FINISHED, STARTED, SessionWriter, open_writer, reply

logs = partial(coterie, "logs")


@pytest.fixture
def small_run(session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
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


def test_events_of_the_newest_session_are_listed_in_wrapped_lines_or_as_json(
    small_run: SessionDirectory, tmp_path: Path
) -> None:
    entries = [line[len("00:00:00 main  ") :] for line in logs(small_run.id[:-2]).stdout.splitlines()]
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
    later = Clock()
    later.advance(60)
    SessionDirectory.create(tmp_path / "other", later, task="t", model="m")
    lines = [msgspec.json.decode(line) for line in logs("--json").stdout.splitlines()]
    assert " ".join(line["kind"] for line in lines) == (
        "started message text retrying message replied tool_started tool_ended message message replied finished"
    )
    assert {line["session"] for line in lines} == {small_run.id}
    assert SessionDirectory.find(small_run.id).starts == 1, "reading is not a start"


def test_agent_option_selects_one_agent_or_suggests_a_name(small_run: SessionDirectory) -> None:
    with open_writer(small_run.directory, "scout") as scout:
        scout.write_text("user", "look around")
    assert logs("--agent", "scout").stdout.endswith("scout  user: look around\n")
    wrong = logs("--agent", "skout")
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 1)
    assert wrong.output.endswith("'skout'; did you mean scout?\n")


def test_events_cannot_control_the_terminal(small_run: SessionDirectory) -> None:
    with open_writer(small_run.directory, "evil\x1b[2J") as agent:
        agent.write_text("user", "a\x1b]0;title\x07b\x1b[2Jc\x9b1md\u202ee\rf\x00g")
        agent.put("assistant", {"type": "tool_use", "id": "t", "name": "Ba\x00sh", "input": {"k\x07": "\x1b[2J"}})
    shown = logs().stdout
    assert not {character for character in shown if not character.isprintable()} - {"\n"}
    assert "user: abc1mde\n" in shown
    assert r"calls Bash(k='\x1b[2J')" in shown


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "coterie", "logs", *arguments]


@pytest.mark.slow
def test_following_continues_over_a_resume(small_run: SessionDirectory) -> None:
    with open_writer(small_run.directory) as agent:
        agent.write_event(STARTED)
        with subprocess.Popen(command("-f", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(13)]
            assert msgspec.json.decode(seen[-1])["kind"] == "started"
            agent.write_event(FINISHED)
            assert msgspec.json.decode(process.stdout.readline())["kind"] == "finished"
            assert process.wait(10) == 0


@pytest.mark.slow
def test_an_interrupted_follower_exits_130_without_a_traceback(small_run: SessionDirectory) -> None:
    with (
        open_writer(small_run.directory) as agent,
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
def test_an_encoding_without_a_character_causes_no_traceback(small_run: SessionDirectory) -> None:
    with open_writer(small_run.directory) as agent:
        agent.write_text("user", "snow ☃ \ud800".encode(errors="replace").decode())
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command(), env=environment, capture_output=True, check=True)
    assert b"user: snow ? ?\n" in done.stdout


BOUNDARY = Boundary(
    trigger="threshold",
    by="notes",
    turn=4,
    tokens_before=900,
    tokens_after=300,
    left=6,
    kept=0,
    parts=["context", "summary", "words"],
)


def used(turn: int, tokens: int) -> ReplyRecord:
    return msgspec.structs.replace(reply(turn), usage=Usage(input=tokens, output=7))


@attrs.frozen
class Run:
    """A session, and the bodies of its requests as rendered before sending."""

    session: SessionDirectory
    bodies: list[bytes]


def ask(agent: SessionWriter, bodies: list[bytes], turn: int, tokens: int, block: dict[str, Any]) -> None:
    rendered = agent.conversation.render(max_tokens=8000)
    bodies.append(rendered.body)
    agent.conversation.sent(rendered)
    agent.put("assistant", block, used(turn, tokens))


def call(id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "Read", "input": {"file_path": f"{id_}.py"}}


def result(id_: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": [{"type": "text", "text": text}]}


@pytest.fixture
def run(session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Two rounds of calls, one result cleared, then a compaction by notes, and a last turn."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    bodies = list[bytes]()
    with open_writer(session.directory) as agent:
        agent.conversation.append("user", [text_block("the context"), text_block("the task")])
        agent.transcript.record(agent.conversation, UserTextRecord(texts=["the task"]))
        ask(agent, bodies, 1, 100, call("t1"))
        agent.write_event(
            ResultsStored(paths=["/s/tool-results/t1.txt"], characters_before=90_000, characters_after=2_000)
        )
        agent.put("user", result("t1", "<persisted-output>\nlong\n</persisted-output>"))
        ask(agent, bodies, 2, 500, call("t2"))
        agent.put("user", result("t2", "wörd " * 100))
        agent.conversation.rewrite(clear_results(agent.conversation.segments, {"t1"}))
        agent.transcript.record(agent.conversation)
        agent.write_event(
            ResultsCleared(
                mechanism="time", results=1, tokens_before=800, tokens_after=600, where="/s/transcript.jsonl"
            )
        )
        ask(agent, bodies, 3, 900, {"type": "text", "text": "I go on."})
        agent.write_event(
            NotesUpdated(path="/s/notes.md", tokens=50, edits=2, trimmed=[], seconds=1.5, cost_usd="0.01")
        )
        written = [text_block(text) for text in ("the context", "the notes", "the task")]
        agent.conversation.rewrite([("user", written)])
        agent.transcript.record(agent.conversation, boundary=BOUNDARY)
        agent.write_event(COMPACTED)
        ask(agent, bodies, 4, 300, {"type": "text", "text": "done"})
    return Run(session, bodies)


def test_rendered_shows_the_source_of_each_part_of_a_request(run: Run) -> None:
    lines = logs("--turn", "3", "--rendered").stdout.splitlines()
    assert lines[0] == "# turn 3, epoch 1: 900 tokens, 0 from the cache"
    margins, parts = zip(*(line.split("| ", 1) for line in lines[1:]), strict=True)
    assert "".join(parts).encode() == run.bodies[2]
    for number, body in enumerate(run.bodies, 1):
        assert logs("--turn", str(number), "--rendered", "--bytes").stdout_bytes == body
    assert [" ".join(margin.split()) for margin in margins] == [
        "parameters",
        "0 system marker 5m",
        "1 context #1",
        "2 task marker 5m",
        "3 call #2",
        "4 result, layer 2 cleared #3",
        "5 call #4",
        "6 result marker 5m #5",
        "end",
    ]
    lines = logs("--turn", "4", "--rendered").stdout.splitlines()
    assert lines[1] == "# compacted before turn 4, by notes: 6 messages removed, 0 kept; 900 -> 300 tokens"
    assert [" ".join(line.split("|")[0].split()) for line in lines[3:-1]] == [
        "0 system marker 5m",
        "1 context, restored #1",
        "2 summary, layer 3 notes marker 5m",
        "3 words, restored marker 5m",
    ]
    found = json.loads(logs("--turn", "2", "--rendered", "--json").stdout)
    assert (found["turn"], found["epoch"], found["body"].encode()) == (2, 0, run.bodies[1])
    last = found["parts"][-1]
    assert " ".join(last) == "index section role message origin layer tokens is_marked"
    assert (last["index"], last["message"], last["is_marked"], last["tokens"] > 0) == (4, 3, True, True)
    assert (last["section"], last["origin"], last["layer"]) == ("messages", "result", "layer 1 stored")


def test_rendered_shows_the_last_request_of_a_turn(run: Run) -> None:
    with open_writer(run.session.directory, "cut") as agent:
        agent.write_text("user", "write much")
        for max_tokens, is_taken in ((8000, False), (16000, True)):
            rendered = agent.conversation.render(max_tokens=max_tokens)
            agent.conversation.sent(rendered)
            record = msgspec.structs.replace(reply(1), max_tokens=max_tokens, is_taken=is_taken)
            agent.transcript.record(agent.conversation, record)
    lines = logs("--agent", "cut", "--turn", "1", "--rendered").stdout.splitlines()
    assert lines[1].startswith("# sent 2 times")
    assert '{"max_tokens":16000' in lines[2]


def test_text_of_the_model_cannot_control_the_terminal(run: Run) -> None:
    with open_writer(run.session.directory, "evil") as agent:
        agent.write_text("user", "a\u202eb\x9b1mc")
        agent.write_text("assistant", "x", reply())
    shown = logs("--agent", "evil", "--turn", "1", "--rendered").stdout
    assert not {character for character in shown if not character.isprintable()} - {"\n"}
    assert r"a\u202eb\x9b1mc" in shown
    assert logs("--agent", "evil", "--dropped").stdout.count("\n") == 1, "nothing was removed"


def test_layers_shows_tokens_by_turn_and_layer_and_shares_that_add_up(run: Run) -> None:
    lines = logs("--layers").stdout.splitlines()
    assert lines[0].endswith("turns 1 to 4")
    assert lines[1] == "total     ▁▄█▃  min       100  max       900  last       300"
    assert [line.split()[0] for line in lines[2:7]] == ["prompt", "summary", "restored", "messages", "results"]
    assert lines[7:] == [
        "layer 1, long results on disk: results 1, characters removed 88,000",
        "layer 2, old results cleared by time: results 1, tokens removed 200",
        "layer 3, session notes: updates 1",
        "layer 3, compaction by notes: compactions 1, messages removed 6, tokens removed 600",
    ]
    found = json.loads(logs("--layers", "--json").stdout)
    assert [turn["total"] for turn in found["turns"]] == [100, 500, 900, 300]
    for turn in found["turns"]:
        assert sum(turn["shares"].values()) == pytest.approx(turn["total"], abs=3)
    assert found["turns"][2]["shares"]["results"] > found["turns"][2]["shares"]["messages"]
    last = found["turns"][3]["shares"]
    assert last["restored"] > last["summary"] > last["results"] == last["messages"] == 0
    kinds = " ".join(each["kind"] for each in found["layers"])
    assert kinds == "results_stored results_cleared notes_updated compacted"


def test_dropped_lists_removed_content_with_its_files_and_transcript_lines(run: Run) -> None:
    lines = [line[len("00:00:00 ") :] for line in logs("--dropped").stdout.splitlines()]
    assert lines[:3] == [
        "before turn 2: 1 long result stored on disk: 90,000 -> 2,000 characters",
        "stored in /s/tool-results/t1.txt",
        "before turn 3: 1 old result cleared by time: 800 -> 600 tokens",
    ]
    assert lines[4].startswith("before turn 4: compacted by notes (threshold): 900 -> 300 tokens; 6 messages removed")
    assert lines[6:] == ["names no longer in context: src/a.py, E501, and 1 more"]
    found = [json.loads(line) for line in logs("--dropped", "--json").stdout.splitlines()]
    kinds = " ".join(f"{each['kind']}/{each['turn']}" for each in found)
    assert kinds == "results_stored/2 results_cleared/3 compacted/4"
    transcript = (run.session.directory / "agents/main/transcript.jsonl").read_text().splitlines()
    assert "persisted-output" in "\n".join(transcript[: found[1]["last_line"]])
    assert '"boundary":{' in transcript[found[2]["last_line"] - 1]
    assert found[0]["files"] == ["/s/tool-results/t1.txt"]
    assert found[2]["dropped"] == ["src/a.py", "E501"]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--turn", "9", "--rendered"], "--turn: turn 9 is not in the transcript; choose one from 1 to 4"),
        (["--turn", "1"], "--turn: "),
        (["--rendered"], "--rendered: "),
        (["--layers", "--dropped"], "logs: "),
        (["--layers", "-f"], "logs: "),
        (["--bytes"], "--bytes: "),
        (["--agent", "silent", "--layers"], "--agent: agent 'silent' of session SESSION has no transcript"),
    ],
)
def test_options_that_cannot_be_used_are_refused_in_one_line(run: Run, arguments: list[str], key: str) -> None:
    (run.session.directory / "agents" / "silent").mkdir()
    done = logs(*arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"Error: {key.replace('SESSION', run.session.id)}")


def test_a_damaged_transcript_is_refused_in_one_line(run: Run) -> None:
    path = run.session.directory / "agents/main/transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b"the notes", b"the knots"))
    done = logs("--layers")
    assert (done.exit_code, "is damaged, " in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_events_of_the_layers_have_texts(run: Run) -> None:
    with open_writer(run.session.directory) as agent:
        agent.write_event(BreakerTripped(failures=3, reason="the summary was empty"))
        agent.write_event(CleanedUp(killed=1, mended=["draft: remove it"], failures=["process 7 survived"]))
        agent.write_event(msgspec.structs.replace(COMPACTED, by="summary", passed_over={"notes": "there are none"}))
    shown = " ".join(logs().stdout.split())
    assert "session notes updated: 50 tokens after 2 edits, 1.5 s, $0.01" in shown
    assert "compacted by notes (threshold): 900 -> 300 tokens; 6 messages removed, 0 kept" in shown
    assert "3 names of the last turns lost; $0; not by notes: there are none" in shown
    assert "3 summaries failed in a row: the summary was empty; " in shown
    assert "killed 1 process, repaired draft: remove it; not repaired: process 7 survived" in shown
