"""Layers 1 and 2: storage of long results, selection of old results, and the conversation without them."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.model.catalog import Role
from coterie.files import file_faults
from coterie.memory.compaction.result_clearing import (
    PLACEHOLDER,
    ClearableResults,
    clear_results,
    make_cache_edits,
    minimum_to_clear,
)
from coterie.memory.compaction.result_storage import (
    LongResult,
    result_file_name,
    select_results,
    store_results,
    truncate_text,
)
from coterie.memory.compaction.rewrite import CALLED, Message
from coterie.memory.layer_settings import ResultSettings
from tests.seeded_faults import SeededFaults

LIMITS = ResultSettings()


def result(id_: str, size: int, cap: int | None = 50_000) -> LongResult:
    return LongResult(id=id_, text="x" * size, cap=cap)


@pytest.mark.parametrize(
    ("results", "stored"),
    [
        pytest.param([("a", 50_000), ("b", 50_001), ("c", 30_001, 30_000)], ["b", "c"], id="over the cap"),
        pytest.param([("a", 190_000, None), ("b", 40_000), ("c", 30_000)], ["b", "c"], id="without cap"),
        pytest.param([(str(n), 40_000 + n) for n in range(6)], ["5", "4"], id="largest first"),
        pytest.param([("big", 300_000, None), ("small", 1_900)], [], id="shorter than its preview"),
    ],
)
def test_long_results_are_stored(results: list[tuple[str, int]], stored: list[str]) -> None:
    assert [each.id for each in select_results([result(*facts) for facts in results], LIMITS)] == stored


@given(st.lists(st.tuples(st.integers(0, 120_000), st.sampled_from([None, 20_000, 30_000, 50_000])), max_size=12))
def test_remaining_results_fit_unless_they_have_no_cap(sizes: list[tuple[int, int | None]]) -> None:
    results = [result(str(n), size, cap) for n, (size, cap) in enumerate(sizes)]
    stored = {each.id for each in select_results(results, LIMITS)}
    left = [each for each in results if each.id not in stored]
    assert all(each.cap is None or len(each.text) <= each.cap for each in left)
    assert not any(each.cap is None for each in results if each.id in stored)
    total = sum(len(each.text) for each in left) + LIMITS.preview * len(stored)
    shrinkable = [each for each in left if each.cap is not None and len(each.text) > LIMITS.preview]
    assert total <= LIMITS.total or not shrinkable


def test_stored_file_is_complete_and_block_shows_its_beginning(tmp_path: Path) -> None:
    text = "".join(f"line {n} é\n" for n in range(9_000))
    path, shown = store_results([LongResult(id="toolu_1", text=text, cap=1)], tmp_path / "new", LIMITS)["toolu_1"]
    assert path == tmp_path / "new/toolu_1.txt"
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(part in shown for part in (f"{len(text):,} characters", str(path), "line 0 é\nline 1 é\n"))
    assert len(shown.encode()) < 2_000 + 300
    assert shown.endswith("\n</persisted-output>")


@given(st.text(), st.integers(0, 60))
def test_truncated_text_is_a_prefix_that_ends_at_a_line_end(text: str, size: int) -> None:
    start = truncate_text(text, size)
    clean = text.encode("utf-8", "replace").decode()
    assert clean.startswith(start)
    assert len(start.encode()) <= size
    if len(start) < len(clean) and "\n" in clean.encode()[:size].decode("utf-8", "ignore"):
        assert clean[len(start)] == "\n"


@pytest.mark.parametrize("id_", ["../../etc/passwd", "a/b", "", "x" * 300, ".", "a\0b", "\\ud800"])
def test_result_id_cannot_escape_the_directory(tmp_path: Path, id_: str) -> None:
    name = result_file_name(id_)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert len(name) == 36


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with file_faults(SeededFaults(seed=1, full=1.0)), pytest.raises(OSError, match="No space"):
        store_results([result("a", 60_000)], tmp_path, LIMITS)
    assert list(tmp_path.iterdir()) == []


LONG = "content " * 50


def conversation(*messages: tuple[Role, list[dict[str, Any]]]) -> Conversation:
    begun = Conversation.begin(KeyHeader(model="claude-opus-5-5"), tools=[b'{"name":"Read"}'])
    for role, blocks in messages:
        begun.append(role, [json.dumps(block).encode() for block in blocks])
    return begun


def user(text: str) -> tuple[Role, list[dict[str, Any]]]:
    return "user", [{"type": "text", "text": text}]


def calls(*ids: str, name: str = "Read", thinks: bool = True) -> tuple[Role, list[dict[str, Any]]]:
    thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}] if thinks else []
    return "assistant", [*thought, *({"type": "tool_use", "id": id_, "name": name, "input": {"n": id_}} for id_ in ids)]


def results(*ids: str, content: Any = LONG) -> tuple[Role, list[dict[str, Any]]]:
    return "user", [{"type": "tool_result", "tool_use_id": id_, "content": content} for id_ in ids]


def shown(messages: list[Message]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(role, [json.loads(block) for block in blocks]) for role, blocks in messages]


def clearable(of: Conversation) -> list[str]:
    tracker = ClearableResults(lambda name: name != "mcp")
    return [result.id for result in tracker.update(of.prefix, of.epoch)]


def test_clearable_results_are_found_in_order_without_small_and_cache_deleted_ones() -> None:
    of = conversation(
        user("go"), calls("a", "b"), results("a", "b"), calls("c", name="mcp"), results("c"), calls("d"),
        results("d", content="tiny"),
    )  # fmt: skip
    assert clearable(of) == ["a", "b"]
    of.append("user", [make_cache_edits(["a"])])
    assert clearable(of) == ["b"]


def test_update_reads_only_new_segments_until_a_new_epoch() -> None:
    of = conversation(user("go"), calls("a"), results("a"))
    tracker = ClearableResults(lambda _: True)
    assert [r.id for r in tracker.update(of.prefix, of.epoch)] == ["a"]
    for role, blocks in (calls("b", thinks=False), results("b")):
        of.append(role, [json.dumps(block).encode() for block in blocks])
    assert [r.id for r in tracker.update(of.prefix, of.epoch)] == ["a", "b"]
    text = f"{PLACEHOLDER} The same was read again below, in the result of a later call." + " It is long." * 20
    of.rewrite(clear_results(of.segments, {"a"}, placeholder=text))
    assert [r.id for r in tracker.update(of.prefix, of.epoch)] == ["b"], "a cleared result is not cleared again"
    of.rewrite(clear_results(of.segments, {"b"}, placeholder=text))
    assert tracker.update(of.prefix, of.epoch) == []
    assert tracker.newest(1) == {"b"}, "a cleared result counts among the newest"


def test_clearing_drops_thinking_after_the_first_change_and_keeps_earlier_blocks() -> None:
    of = conversation(
        user("go"), calls("a"), results("a", content="tiny"), calls("b"), results("b"), calls("c"), results("c"),
        ("assistant", [{"type": "thinking", "thinking": "x", "signature": "s"}, {"type": "text", "text": "done"}]),
        user("more"),
    )  # fmt: skip
    messages = shown(clear_results(of.segments, {"b"}))
    assert [[block["type"] for block in blocks] for _, blocks in messages] == [
        ["text"], ["thinking", "tool_use"], ["tool_result"], ["thinking", "tool_use"], ["tool_result"],
        ["tool_use"], ["tool_result"], ["text"], ["text"],
    ]  # fmt: skip
    assert messages[4][1][0]["content"] == [{"type": "text", "text": PLACEHOLDER}]
    assert messages[6][1][0]["content"] == LONG


def test_open_loop_is_closed_when_another_message_follows_its_results() -> None:
    of = conversation(user("go"), calls("a"), results("a"), calls("b"), results("b"), user("go on"))
    messages = shown(clear_results(of.segments, {"a"}))
    assert [role for role, _ in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert [block["type"] for block in messages[-1][1]] == ["text", "text"]
    of = conversation(user("go"), calls("a"), results("a"), calls("b", thinks=False), results("b"))
    *_, (_, called), (_, answered) = shown(clear_results(of.segments, {"a"}))
    assert (called[0]["type"], answered[0]["type"]) == ("tool_use", "tool_result"), "without thinking it stays"


def test_closed_round_shows_calls_and_results_as_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    _, (answer,) = results("b", content=[image, {"type": "text", "text": "B"}])
    _, (error,) = results("c", content="C")
    last: tuple[Role, list[dict[str, Any]]] = ("user", [answer, error | {"is_error": True}, *user("mail")[1]])
    of = conversation(user("go"), calls("a"), results("a"), calls("b", "c"), last)
    *_, said, (role, blocks) = shown(clear_results(of.segments, {"a"}))
    assert said == ("assistant", [{"type": "text", "text": CALLED}])
    assert (role, [block["type"] for block in blocks]) == ("user", ["text", "image", "text", "text"])
    assert [block["text"] for block in blocks if "text" in block] == [
        '<earlier-call>\nRead {"n":"b"}\n<result>\nB\n</result>\n</earlier-call>',
        '<earlier-call>\nRead {"n":"c"}\n<error>\nC\n</error>\n</earlier-call>',
        "mail",
    ]


def test_cache_deleted_results_are_cleared_and_edits_removed() -> None:
    of = conversation(user("go"), calls("a", "b"), results("a", "b"))
    assert clear_results(of.segments, ()) == [(role, list(blocks)) for role, blocks in of.messages]
    of.append("user", [b'{"type":"text","text":"x"}', make_cache_edits(["a"])])
    messages = shown(clear_results(of.segments, ()))
    assert messages[2][1][0]["content"] == [{"type": "text", "text": PLACEHOLDER}]
    assert messages[2][1][1]["content"] == LONG
    assert "cache_edits" not in json.dumps(messages)


@given(st.integers(1, 1_000_000), st.integers(1, 500), st.integers(2, 100), st.integers(1, 99))
def test_minimum_to_clear_is_the_break_even_point(trigger: int, turns: int, write: int, share: int) -> None:
    prices = {"write": Decimal(write), "read": Decimal(write) * share / 100}
    least = minimum_to_clear(trigger, **prices, turns=turns)

    def gain(tokens: int) -> Decimal:
        return tokens * prices["read"] * turns - (trigger - tokens) * (prices["write"] - prices["read"])

    assert gain(least) > 0
    assert gain(least - 1) <= 0
