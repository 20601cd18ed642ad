from decimal import Decimal
from pathlib import Path

import pytest

from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid

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
