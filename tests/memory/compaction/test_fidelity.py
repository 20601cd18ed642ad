"""Detection of terms that a summary lost: paths, names and numbers, each as a separate word."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.compaction.fidelity import find_lost_terms
from coterie.memory.compaction.summary_text import block_text

TERMS = "src/app.py /etc/hosts snake_case CamelCase os.path --dry-run E1234 a1b2c3d 4096 3.11.4"
WORDS = st.sampled_from(TERMS.split())
PROSE = st.sampled_from(("and", "the file", "was read, then", "(see", "it).", "and/or", "e.g."))


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Look at src/app/main.py:120, then /etc/hosts.", ["src/app/main.py", "120", "/etc/hosts"]),
        ("./run.sh and ../lib/ and ~/notes and README.md", ["./run.sh", "../lib", "~/notes", "README.md"]),
        ("call `read_line()` of TranscriptWriter", ["read_line", "TranscriptWriter"]),
        ("HTTPServer(os.environ['PATH'])", ["HTTPServer", "os.environ", "PATH"]),
        ("git log --oneline -n 5 a1b2c3d", ["--oneline", "a1b2c3d"]),
        ("E501 in claude-opus-5-5, ENOENT", ["E501", "claude-opus-5-5", "ENOENT"]),
        ("160,000 tokens, 1.5 s, version 3.11.4, on 2026-11-16", ["160000", "1.5", "3.11.4", "2026-11-16"]),
        ("__init__ and _private of .env", ["__init__", "_private", ".env"]),
    ],
)
def test_paths_names_and_numbers_are_terms(text: str, marked: list[str]) -> None:
    assert find_lost_terms([text], "") == marked


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, said well; and/or others, e.g. these: 7, the 1st, n/a.",
        "Copyright 2026, since 1998",
        "     1\timport\n    12\tthe\n  1234\tend",
        "... -- - / // . @ ~",
        "",
    ],
)
def test_prose_years_and_line_numbers_are_not_terms(text: str) -> None:
    assert find_lost_terms([text], "") == []


def test_lost_terms_are_ordered_by_newest_turn_without_duplicates() -> None:
    turns = ["open old.py and a.py", "a.py has 42 lines", "new.py calls run_loop in a.py"]
    assert find_lost_terms(turns, "We looked at a.py:7.") == ["new.py", "run_loop", "42", "old.py"]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("4096 in src/app.py", "14096 in src/app.pyc and lib/src/app.py", ["4096", "src/app.py"]),
        ("160,000 tokens", "160000 tokens", []),
        ("160000 tokens", "(160,000)", []),
    ],
)
def test_term_is_kept_as_a_whole_word_with_or_without_commas(before: str, after: str, lost: list[str]) -> None:
    assert find_lost_terms([before], after) == lost


@given(st.lists(st.lists(WORDS | PROSE, max_size=8), max_size=5), st.lists(WORDS | PROSE, max_size=8))
def test_term_is_lost_exactly_if_it_is_missing_afterwards(before: list[list[str]], after: list[str]) -> None:
    texts = [" ".join(words) for words in before]
    expected: dict[str, None] = {}
    for text in reversed(texts):
        expected |= dict.fromkeys(find_lost_terms([text], ""))
    gone = [word for word in expected if word not in find_lost_terms([" ".join(after)], "")]
    assert find_lost_terms(texts, " ".join(after)) == gone


@given(st.text(), st.text())
def test_any_text_loses_no_terms_of_itself(text: str, more: str) -> None:
    assert find_lost_terms([text], f"{more} {text}") == []
    assert set(find_lost_terms([text], more)) <= set(find_lost_terms([text], ""))


def test_block_text_is_the_readable_text() -> None:
    def shown(block: dict[str, object]) -> str:
        return block_text(json.dumps(block).encode())

    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "text", "text": "b"}]
    assert shown({"type": "text", "text": "said"}) == "said"
    assert shown({"type": "tool_use", "input": {"path": "a.py", "lines": [3, None, {"deep": "x"}]}}) == "a.py\n3\nx"
    assert shown({"type": "tool_result", "content": "plain"}) == "plain"
    assert shown({"type": "tool_result", "content": parts}) == "a\nb"
    assert shown({"type": "thinking", "thinking": "hm", "signature": "s"}) == ""
