from pathlib import Path
from typing import Any

import msgspec

from coterie.scenarios.recording.lanes import NOT_RECORDED, lane
from coterie.scenarios.recording.places import Places
from coterie.scenarios.recording.voices import Result, Said
from coterie.scenarios.server.script.reading import parse_script
from tests.scenarios.recording.voicing import call, said, text, voice


def lane_of(*replies: Said) -> list[dict[str, Any]]:
    places = Places(project=Path("/p"), session=Path("/s"), home=Path("/h"))
    found = lane(voice("main", *replies), places, None)
    parse_script(msgspec.json.encode({"main": found}).decode(), "recorded")
    return found


def test_thinking_text_and_calls_stand_under_their_keys_without_signatures_and_ids() -> None:
    thinking = {"type": "thinking", "thinking": "Where?", "signature": "c2ln"}
    reply = said(1, 1, thinking, text("Here."), call("Read", file_path="/p/a.py"), stop="tool_use")
    assert lane_of(reply) == [{"thinking": "Where?", "text": "Here.", "tools": [{"Read": {"file_path": "a.py"}}]}]


def test_blocks_in_another_order_keep_it() -> None:
    reply = said(1, 1, text("One."), call("Read", file_path="a"), text("Two."), stop="tool_use")
    blocks = [{"text": "One."}, {"tool": "Read", "input": {"file_path": "a"}}, {"text": "Two."}]
    assert lane_of(reply) == [{"content": blocks}]


def test_a_stop_that_is_not_the_usual_one_is_kept() -> None:
    assert lane_of(said(1, 1, text("I had to"), stop="max_tokens")) == [{"text": "I had to", "stop": "max_tokens"}]
    assert lane_of(said(1, 1, stop="refusal")) == [{"stop": "refusal"}]


def test_what_only_its_model_can_read_is_left_out_and_an_empty_reply_still_ends_its_turn() -> None:
    assert lane_of(said(1, 1, {"type": "redacted_thinking", "data": "x"}, text(""))) == [{"stop": "end_turn"}]


def test_replies_keep_their_turns_also_where_one_is_missing() -> None:
    assert lane_of(said(3, 1, text("three"))) == [{"text": NOT_RECORDED}, {"text": NOT_RECORDED}, {"text": "three"}]


def test_agents_that_were_started_at_once_without_names_get_those_that_they_had() -> None:
    """They are numbered as they come up; whose lane is whose must not be a race."""
    lead = voice("main", said(1, 1, call("Agent", "a", prompt="A."), call("Agent", "b", prompt="B.")))
    for id_, words in (("a", "scout-2 works in the background. Wait."), ("b", "scout-1 has ended. Status: completed.")):
        lead.results[id_] = Result(text=words, is_error=False, at=2)
    places = Places(project=Path("/p"), session=Path("/s"), home=Path("/h"))
    tools = [{"Agent": {"name": "scout-2", "prompt": "A."}}, {"Agent": {"name": "scout-1", "prompt": "B."}}]
    assert lane(lead, places, None) == [{"tools": tools}]
    lead.replies = [said(1, 1, call("Agent", "a", prompt="A."))]
    assert lane(lead, places, None) == [{"tools": [{"Agent": {"prompt": "A."}}]}]
