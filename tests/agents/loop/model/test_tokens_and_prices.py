import base64
import json
from decimal import Decimal
from pathlib import Path

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
from coterie.agents.loop.model.catalog import known_models, load_models
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid
from tests.agents.conversation_blocks import image, text, tool_use
from tests.agents.tools.files.pdf_files import pdf
from tests.examples import examples

MODELS = load_models()


def test_every_model_has_last_tier_and_ordered_prices() -> None:
    for model in MODELS.models.values():
        for price in model.prices:
            assert price.read < price.input < price.write_5m < price.write_1h, model.id
            assert price.output == 5 * price.input, model.id
            assert price.write_5m == price.input * Decimal("1.25"), model.id


@pytest.mark.parametrize(
    ("name", "id_"),
    [("sonnet", "claude-sonnet-5-5"), ("haiku", "claude-haiku-5-5"), ("opus", "claude-opus-5-5"),
     ("claude-haiku-4-5-20251001", "claude-haiku-4-5"), ("sonnet[1m]", "claude-sonnet-5-5")],
)  # fmt: skip
def test_aliases_name_known_models(name: str, id_: str) -> None:
    assert MODELS.get(name).id == id_
    with pytest.raises(ConfigInvalid, match="claude-opus-5-5"):
        MODELS.get("claude-opus-5.5")


def test_cost_is_exact_to_last_digit() -> None:
    """One token at 20 cents per million costs two ten-millionths of a dollar, and a billion tokens cost 200."""
    opus = MODELS.get("opus")
    assert opus.cost(Usage(read=1)) == Decimal("0.0000002")
    assert opus.cost(Usage(input=8, read=50_000, write_5m=5_120, write_1h=7, output=300)) == Decimal("0.041688")


def test_users_file_overrides_table_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[aliases]\nmine = "claude-opus-5-5"\n[models.claude-opus-5-5]\nwindow = 300_000\n')
    model = load_models(path).get("mine")
    assert (model.window, model.max_output) == (300_000, 128_000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[models.claude-opus-5-5]\nwindw = 1\n", "did you mean 'window'"),
        ("[model.x]\nwindow = 1\n", r"unknown table \[model\]"),
        ("[models.new]\nname = 'x'\n", r"\[models.new\] is incomplete"),
        ("[models.claude-opus-5-5]\nprices = []\n", "must end with a tier"),
        ("not toml", "not a readable TOML file"),
    ],
)
def test_invalid_users_file_is_refused_with_its_name(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match=reason) as caught:
        load_models(path)
    assert str(path) in str(caught.value)


def test_usage_is_parsed_with_missing_fields() -> None:
    split = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2}
    usage = Usage.from_api(
        {"input_tokens": 1, "cache_read_input_tokens": None, "cache_creation_input_tokens": 5, "cache_creation": split}
    )
    assert usage == Usage(input=1, write_5m=3, write_1h=2)
    assert Usage.from_api({"cache_creation_input_tokens": 5, "output_tokens": 2}) == Usage(write_5m=5, output=2)
    assert usage + usage == Usage(input=2, write_5m=6, write_1h=4)


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
    meter.resume(usage, len(conversation), conversation.epoch)
    assert meter.tokens(conversation) == 54_321
    conversation.append("user", [text("x" * 40)])
    assert meter.tokens(conversation) == 54_321 + 10


def test_window_comes_from_name_or_table_and_can_only_be_lowered() -> None:
    small = known_models().get("claude-haiku-4-5")
    assert window_of("claude-haiku-4-5[1m]", small) == 1_000_000
    assert window_of("claude-haiku-4-5", small) == 200_000
    assert window_of("claude-haiku-4-5", small, 90_000) == 90_000
    assert window_of("claude-haiku-4-5", small, 900_000) == 200_000


def test_thresholds_depend_on_window_and_output() -> None:
    thresholds = Thresholds.for_window(200_000, 64_000)
    assert thresholds == Thresholds(effective=180_000, warn=147_000, compact=167_000, block=177_000)
    assert Thresholds.for_window(200_000, 4_096).effective == 195_904
    with pytest.raises(ConfigInvalid, match="more than 33000"):
        Thresholds.for_window(33_000, 64_000)
    assert Thresholds.for_window(33_001, 64_000).warn == 0
