"""Tests of SearchTranscript over cleared, compacted, forked and torn transcripts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import Boundary, MailRecord
from coterie.agents.tools.search.search_transcript import SearchTranscript
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.memory.compaction.result_clearing import clear_results
from tests.agents.conversation_blocks import HEADER, text, thinking
from tests.agents.tools.tool_calls import call
from tests.orchestrator.session_writer import reply

pytestmark = pytest.mark.slow

BOUNDARY = Boundary(
    trigger="threshold", by="notes", turn=3, tokens_before=9, tokens_after=5, left=4, kept=1, parts=["summary"]
)


def use(id_: str, name: str, **arguments: Any) -> bytes:
    return msgspec.json.encode({"type": "tool_use", "id": id_, "name": name, "input": arguments})


def result(id_: str, words: str) -> bytes:
    content = [{"type": "text", "text": words}]
    return msgspec.json.encode({"type": "tool_result", "tool_use_id": id_, "content": content})


@pytest.fixture
def past(tmp_path: Path) -> Iterator[tuple[Conversation, TranscriptWriter]]:
    """Write two turns: a file is read and a search is made; then mail arrives."""
    conversation = Conversation.begin(HEADER)
    with TranscriptWriter.open(tmp_path / "transcript.jsonl") as writer:
        conversation.append("user", [text("Find the port of the gateway.")])
        writer.record(conversation)
        conversation.append("assistant", [thinking(), text("I look."), use("t1", "Read", file_path="conf/a.ini")])
        writer.record(conversation, reply(1))
        conversation.append("user", [result("t1", "name = gateway\nport = 4711\n" + "padding " * 1_000)])
        writer.record(conversation)
        conversation.append("assistant", [use("t2", "SearchTranscript", pattern="4711")])
        writer.record(conversation, reply(2))
        conversation.append("user", [result("t2", "turn 2, 4711"), text('<message from="scout">\nport 99\n</message>')])
        writer.record(conversation, MailRecord(ids=["m1"]))
        yield conversation, writer


async def search(directory: Path, **arguments: Any) -> ToolResult:
    tool = SearchTranscript(path=directory / "transcript.jsonl", time_limit=arguments.pop("time_limit", 30))
    return await call(tool, Workspace(root=directory, scratch=directory), **arguments)


Past = tuple[Conversation, TranscriptWriter]


async def test_results_show_turn_source_and_text_newest_first_without_own_calls(past: Past, tmp_path: Path) -> None:
    lines = (await search(tmp_path, pattern="port|conf/|4711")).text.splitlines()
    assert lines[0] == 'turn 3, mail: <message from="scout"> port 99 </message>'
    assert lines[1].startswith("turn 2, result of Read: name = gateway port = 4711 padding padding")
    assert lines[2] == "turn 1, call Read: file_path: conf/a.ini"
    assert lines[3] == "turn 1, user: Find the port of the gateway."
    assert lines[4:] == ["[4 in all; turn=N shows a complete turn]"]
    assert max(map(len, lines)) < 250


async def test_cleared_and_compacted_texts_are_found_once(past: Past, tmp_path: Path) -> None:
    conversation, writer = past
    conversation.rewrite(clear_results(conversation.segments, {"t1"}))
    writer.record(conversation)
    assert "4711" not in conversation.prefix_bytes().decode().replace('"pattern":"4711"', "").replace("2, 4711", "")
    [hit, _] = (await search(tmp_path, pattern="port = 4711")).text.splitlines()
    assert hit.startswith("turn 2, result of Read: ")
    conversation.rewrite([("user", [text("Summary: the gateway is known.")])])
    writer.record(conversation, boundary=BOUNDARY)
    hits = (await search(tmp_path, pattern="gateway")).text.splitlines()
    assert hits[0] == "turn 3, earlier summary: Summary: the gateway is known."
    assert [hit.partition(":")[0] for hit in hits[1:3]] == ["turn 2, result of Read", "turn 1, user"]
    assert hits[3].startswith("[3 in all")
    assert (await search(tmp_path, pattern="cleared")).text == "nothing matches 'cleared' in 3 turns"


async def test_search_can_be_filtered_and_continued(past: Past, tmp_path: Path) -> None:
    first = (await search(tmp_path, pattern="PORT", ignore_case=True, limit=1)).text.splitlines()
    assert first[0].startswith("turn 3, mail")
    assert first[1] == (
        "[3 in all, 2 older ones not shown: narrow the search, or use before_turn; turn=N shows a complete turn]"
    )
    older = (await search(tmp_path, pattern="port", before_turn=3, limit=1)).text
    assert older.startswith("turn 2, result of Read")
    assert (await search(tmp_path, pattern="port", who="user")).text.startswith("turn 1, user")


async def test_turn_is_shown_with_long_texts_cut(past: Past, tmp_path: Path) -> None:
    shown = (await search(tmp_path, turn=2)).text
    assert shown.startswith("[result of Read]\nname = gateway\nport = 4711\npadding")
    assert shown.endswith("[cut after 4,000 of 8,027 characters: search for what you need]")
    assert (await search(tmp_path, turn=1)).text == (
        "[user]\nFind the port of the gateway.\n[assistant]\nI look.\n[call Read]\nfile_path: conf/a.ini"
    )


async def test_inherited_texts_of_fork_precede_its_first_turn(past: Past, tmp_path: Path) -> None:
    conversation, _ = past
    fork = tmp_path / "fork"
    fork.mkdir()
    with TranscriptWriter.open(fork / "transcript.jsonl") as writer:
        writer.record(conversation.fork_with("placeholder", "Look for the host."))
    lines = (await search(fork, pattern="port =|host")).text.splitlines()
    assert lines[0] == "turn 1, user: Look for the host."
    assert lines[1].startswith("turn 0, result of Read")


async def test_exponential_expression_is_stopped_and_torn_last_line_skipped(past: Past, tmp_path: Path) -> None:
    conversation, writer = past
    conversation.append("user", [text("a" * 40)])
    writer.record(conversation)
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(path.read_bytes() + b'\n{"kind":"message","v":1,"role":"user","blocks":[{"type":"text","te')
    assert (await search(tmp_path, pattern="I look")).text.startswith("turn 1, assistant: I look.")
    result = await search(tmp_path, pattern="(a+)+b", time_limit=0.5)
    assert result.is_error
    assert result.text.startswith("The search was stopped after 0.5 s")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"pattern": "("}, "'(' is not a valid regular expression; correct it: missing ), unterminated subpattern"),
        ({}, "Give either pattern, to search, or turn"),
        ({"pattern": "a", "turn": 1}, "Give either pattern, to search, or turn"),
        ({"pattern": "a", "limit": 51}, "limit is 51; give a number from 1 to 50"),
        ({"turn": 9}, "Turn 9 has no text of anyone. Use another turn up to 3."),
    ],
)
async def test_invalid_arguments_are_refused(
    past: Past, tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    result = await search(tmp_path, **arguments)
    assert result.is_error
    assert result.text.startswith(reason)
