"""Comparison of sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.dreaming.statements import comparison_key, split_lines, split_sentences


def keys(text: str) -> list[str]:
    return [sentence.key for sentence in split_sentences(split_lines(text))]


@pytest.mark.parametrize(
    "text",
    [
        "Ann likes tea. Ben rows!",
        "# Ann likes tea\n\n1. Ben rows",
        "- **Ann** likes\n  tea\n- `Ben` rows",
        "> Ann   LIKES tea; ben rows",
        "| Ann likes tea |\n| Ben rows |",
        "```\nAnn likes tea\nBen rows\n```",
        "Ann likes tea\n===\n\nBen rows...",
    ],
)
def test_equal_sentences_have_equal_keys(text: str) -> None:
    assert keys(text) == ["ann likes tea", "ben rows"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It takes <5 ms", "It takes >5 ms"),
        ("a == b", "a != b"),
        ("Use C", "Use C++"),
        ("Edit .env", "Edit env"),
        ("Call _load", "Call load"),
        ("- [ ] Ship it", "- [x] Ship it"),
        ("It is -5", "It is 5"),
        ("Version 1.5", "Version 15"),
        ("Do it", "Do not do it"),
    ],
)
def test_meaningful_symbols_change_the_key(one: str, other: str) -> None:
    assert keys(one) != keys(other)


def test_sentences_without_spaces_are_split() -> None:
    assert keys("猫がいる。犬がいる。") == ["猫がいる", "犬がいる"]


def test_sentence_has_its_lines() -> None:
    found = list(split_sentences(split_lines("One two\nthree. Four\n\nfive.\n"), 10))
    assert [(each.key, each.first, each.last) for each in found] == [
        ("one two three", 10, 11),
        ("four", 11, 11),
        ("five", 13, 13),
    ]


@given(st.text(alphabet="ab .!\n-#>`|1)\u3002", max_size=60))
def test_sentences_contain_all_words_of_a_text(text: str) -> None:
    lines = split_lines(text)
    found = list(split_sentences(lines))
    assert all(0 <= each.first <= each.last < len(lines) for each in found)
    said = "".join(each.key for each in found)
    assert [sign for sign in text if sign in "ab"] == [sign for sign in said if sign in "ab"]
    assert all(comparison_key(each.text) == each.key for each in found)
