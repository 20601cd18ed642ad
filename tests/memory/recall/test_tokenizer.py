"""Tokens are equal for memories and queries, in any language."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.recall.tokenizer import LONGEST, is_single_token, stem, tokenize


@pytest.mark.parametrize(
    "forms",
    [
        "test tests tested testing",
        "connect connected connecting connection connections",
        "policy policies",
        "hop hopped hopping hops",
        "hope hoped hoping hopes",
        "organise organize organised organization organizations",
        "generate generated generating generator generation",
        "address addresses addressed",
        "city cities",
        "agree agreed agrees",
        "happy happily happiness",
        "database databases",
        "deploy deploys deployed deploying",
    ],
)
def test_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(
    "words", ["new now", "university universe", "bus bug", "status state", "sing single", "bed be"]
)
def test_different_words_have_different_stems(words: str) -> None:
    first, second = words.split()
    assert stem(first) != stem(second)


def test_stop_words_are_left_out_unless_requested() -> None:
    assert tokenize("What was the port of the server?") == ["port", "server"]
    assert tokenize("The Who", stop_words=True) == ["the", "who"]


def test_tokens_ignore_case_accents_and_width_but_keep_vowel_signs() -> None:
    assert tokenize("Café MÜLLER Straße \uff46\uff55ll") == tokenize("cafe muller STRASSE full")
    assert tokenize("cafe\u0301") == tokenize("café")
    assert tokenize("हिन्दी में") == ["हिन्दी", "में"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getUserName", "get user name getusernam"),
        ("HTTPServer", "http server httpserver"),
        ("snake_case", "snake case snake_case"),
        ("src/a_layer.py", "src layer py src_a_layer_py"),
        ("src.a_layer.py", "src layer py src_a_layer_py"),
        ("utf8", "utf 8 utf8"),
        ("350,000", "350000"),
        ("2026-11-16", "2026 11 16 2026_11_16"),
        ("__init__", "init"),
    ],
)
def test_compound_name_yields_its_parts_and_itself(name: str, words: str) -> None:
    assert tokenize(name) == words.split()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("数据库迁移需要先备份", "备份数据库"),
        ("猫が好きです", "猫は何歳"),
        ("東京タワーに行く", "東京"),
        ("데이터베이스를 사용한다", "데이터베이스"),
        ("ฐานข้อมูลสำรอง", "ข้อมูล"),
        ("猫", "黒い猫"),
    ],
)
def test_text_without_spaces_matches_a_substring(text: str, query: str) -> None:
    assert set(tokenize(text)) & set(tokenize(query))


@given(st.text(max_size=200))
def test_any_text_yields_tokens_that_the_index_keeps_whole(text: str) -> None:
    for word in tokenize(text, stop_words=True):
        assert 0 < len(word) <= LONGEST
        assert not re.search(r"[\x00-/:-@[-^`{-\x7f\s]", word)


def test_binary_data_yields_few_tokens() -> None:
    assert len(tokenize("x" * 1_000_000)) == 1
    assert len(tokenize("aB1" * 100_000)) < 300


def test_single_token_is_recognised() -> None:
    assert all(map(is_single_token, ("", " ok ", "getUserName", "Straße", "猫")))
    assert not any(map(is_single_token, ("two words", "数据库在哪里")))
