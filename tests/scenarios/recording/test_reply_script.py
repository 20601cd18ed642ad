from typing import Any

import msgspec

from coterie.scenarios.api_server.script.script_parser import parse_script
from coterie.scenarios.recording.reply_script import NOT_RECORDED, agent_replies
from coterie.scenarios.recording.transcript_turns import ModelTurn, RecordedResult
from tests.scenarios.recording.session_samples import agent_turns, call, make_placeholders, reply_turn, text


def lane_of(*replies: ModelTurn) -> list[dict[str, Any]]:
    found = agent_replies(agent_turns("main", *replies), make_placeholders(), None)
    parse_script(msgspec.json.encode({"main": found}).decode(), "recorded")
    return found


def test_thinking_text_and_calls_stand_under_their_keys_without_signatures_and_ids() -> None:
    thinking = {"type": "thinking", "thinking": "Where?", "signature": "c2ln"}
    reply = reply_turn(1, 1, thinking, text("Here."), call("Read", file_path="/p/a.py"), stop="tool_use")
    assert lane_of(reply) == [{"thinking": "Where?", "text": "Here.", "tools": [{"Read": {"file_path": "a.py"}}]}]


def test_blocks_in_another_order_keep_it() -> None:
    reply = reply_turn(1, 1, text("One."), call("Read", file_path="a"), text("Two."), stop="tool_use")
    blocks = [{"text": "One."}, {"tool": "Read", "input": {"file_path": "a"}}, {"text": "Two."}]
    assert lane_of(reply) == [{"content": blocks}]


def test_unusual_stop_reason_is_recorded() -> None:
    assert lane_of(reply_turn(1, 1, text("I had to"), stop="max_tokens")) == [
        {"text": "I had to", "stop": "max_tokens"}
    ]
    assert lane_of(reply_turn(1, 1, stop="refusal")) == [{"stop": "refusal"}]


def test_redacted_thinking_is_omitted_and_an_empty_reply_still_ends_its_turn() -> None:
    assert lane_of(reply_turn(1, 1, {"type": "redacted_thinking", "data": "x"}, text(""))) == [{"stop": "end_turn"}]


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
