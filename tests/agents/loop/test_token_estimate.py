"""Token counts, estimates, and thresholds of a window."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import (
    Thresholds,
    estimate_block,
    window_of,
)
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid
from tests.agents.conversation_blocks import image, text, tool_use
from tests.agents.tools.files.pdf_files import pdf
from tests.examples import examples


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        (text("x" * 40), 10),
        (b'{"type":"thinking","thinking":"xxxxxxxx","signature":"not counted"}', 2),
        (b'{"type":"redacted_thinking","data":"xxxxxxxx"}', 2),
        (tool_use("toolu_1", b'{"a":12}'), 4),
        (b'{"type":"tool_result","tool_use_id":"t","content":"xxxxxxxx"}', 2),
        (b'{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"xxxx"},' + image() + b"]}", 2_001),
        (b'{"type":"tool_result","tool_use_id":"t"}', 0),
        (b'{"type":"compaction","content":"xxxxxxxx"}', 2),
        (image(), 2_000),
        (b'{"type":"document","source":{}}', 2_000),
        (b'{"type":"document","source":{"type":"base64","data":"abc"}}', 2_000),
        (b'{"type":"document","source":{"type":"base64","data":"%s"}}' % base64.b64encode(pdf(7)), 28_000),
        (b'{"type":"document","source":{"type":"text","data":"xxxxxxxx"}}', 2),
        (b'{"type":"document","source":{"type":"content","content":[' + image() + b"]}}", 2_000),
        (b'{"name":"Bash"}', 8),
        (b'{"type":"later"}', 8),
        (b"not json", 4),
    ],
)
def test_block_is_estimated_by_type(block: bytes, tokens: int) -> None:
    assert estimate_block(block) == tokens


@examples(50)
@given(st.binary(max_size=50) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_estimate_never_fails(block: bytes) -> None:
    assert estimate_block(b'{"type":"tool_result","content":%s}' % block) >= 0
    assert estimate_block(block) >= 0


def test_count_is_last_usage_plus_added_blocks() -> None:
    usage = Usage(input=1, read=20, write_5m=300, write_1h=4_000, output=50_000)
    conversation = Conversation.begin(KeyHeader(model="m"))
    conversation.append("user", [text("Go.")])
    meter = WindowMeter(Thresholds.for_window(200_000, 8_000))
    meter.on_reply(usage, conversation)
    assert meter.tokens(conversation) == 54_321
    conversation.append("user", [text("x" * 40)])
    assert meter.tokens(conversation) == 54_321 + 10


def test_window_comes_from_first_known_source_and_can_only_be_lowered() -> None:
    small = known_models().get("claude-haiku-4-5")
    betas, environ = ["context-1m-2025-08-07"], {"COTERIE_CONTEXT_WINDOW": "300000"}
    assert window_of("claude-haiku-4-5[1m]", small, environ={}) == 1_000_000
    assert window_of("claude-haiku-4-5", small, betas=betas, environ=environ) == 200_000
    assert window_of("unknown", None, betas=betas, environ=environ) == 1_000_000
    assert window_of("unknown", None, betas=["other"], environ=environ) == 300_000
    assert window_of("unknown", None, environ={}) == 200_000
    assert window_of("unknown", None, environ={}, compact_window=90_000) == 90_000
    assert window_of("unknown", None, environ={}, compact_window=900_000) == 200_000


@pytest.mark.parametrize("value", ["", "many", "0", "-5"])
def test_non_numeric_environment_variable_is_refused(value: str) -> None:
    with pytest.raises(ConfigInvalid, match="COTERIE_CONTEXT_WINDOW"):
        window_of("unknown", None, environ={"COTERIE_CONTEXT_WINDOW": value})


def test_thresholds_depend_on_window_and_output() -> None:
    thresholds = Thresholds.for_window(200_000, 64_000)
    assert thresholds == Thresholds(effective=180_000, warn=147_000, compact=167_000, block=177_000)
    assert Thresholds.for_window(200_000, 4_096).effective == 195_904
    with pytest.raises(ConfigInvalid, match="more than 33000"):
        Thresholds.for_window(33_000, 64_000)
    assert Thresholds.for_window(33_001, 64_000).warn == 0
