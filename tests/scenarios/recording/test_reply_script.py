from typing import Any

import msgspec
import pytest

from coterie.scenarios.api_server.script.script_parser import parse_script
from coterie.scenarios.recording.reply_script import NOT_RECORDED, agent_replies
from coterie.scenarios.recording.transcript_turns import ModelTurn, RecordedResult
from tests.scenarios.recording.session_samples import agent_turns, call, make_placeholders, reply_turn, text


def lane_of(*replies: ModelTurn) -> list[dict[str, Any]]:
    found = agent_replies(agent_turns("main", *replies), make_placeholders(), None)
    parse_script(msgspec.json.encode({"main": found}).decode(), "recorded")
    return found


THINKING = {"type": "thinking", "thinking": "Where?", "signature": "c2ln"}
READ = call("Read", file_path="/p/a.py")


@pytest.mark.parametrize(
    ("blocks", "stop", "recorded"),
    [
        pytest.param(
            [THINKING, text("Here."), READ],
            "tool_use",
            {"thinking": "Where?", "text": "Here.", "tools": [{"Read": {"file_path": "a.py"}}]},
            id="without signatures and ids",
        ),
        pytest.param(
            [text("One."), READ, text("Two.")],
            "tool_use",
            {"content": [{"text": "One."}, {"tool": "Read", "input": {"file_path": "a.py"}}, {"text": "Two."}]},
            id="in another order",
        ),
        pytest.param([text("I had to")], "max_tokens", {"text": "I had to", "stop": "max_tokens"}, id="cut off"),
        pytest.param([], "refusal", {"stop": "refusal"}, id="refused"),
        pytest.param(
            [{"type": "redacted_thinking", "data": "x"}, text("")], "end_turn", {"stop": "end_turn"}, id="empty"
        ),
    ],
)
def test_reply_is_recorded_with_its_blocks(blocks: list[dict[str, Any]], stop: str, recorded: dict[str, Any]) -> None:
    assert lane_of(reply_turn(1, 1, *blocks, stop=stop)) == [recorded]


def test_replies_keep_their_turns_also_where_one_is_missing() -> None:
    assert lane_of(reply_turn(3, 1, text("three"))) == [
        {"text": NOT_RECORDED},
        {"text": NOT_RECORDED},
        {"text": "three"},
    ]


def test_unnamed_agents_started_together_get_their_recorded_names() -> None:
    """They are numbered as they come up; whose lane is whose must not be a race."""
    lead = agent_turns("main", reply_turn(1, 1, call("Agent", "a", prompt="A."), call("Agent", "b", prompt="B.")))
    for id_, words in (("a", "scout-2 works in the background. Wait."), ("b", "scout-1 has ended. Status: completed.")):
        lead.results[id_] = RecordedResult(text=words, is_error=False)
    placeholders = make_placeholders()
    tools = [{"Agent": {"name": "scout-2", "prompt": "A."}}, {"Agent": {"name": "scout-1", "prompt": "B."}}]
    assert agent_replies(lead, placeholders, None) == [{"tools": tools}]
    lead.replies = [reply_turn(1, 1, call("Agent", "a", prompt="A."))]
    assert agent_replies(lead, placeholders, None) == [{"tools": [{"Agent": {"prompt": "A."}}]}]
