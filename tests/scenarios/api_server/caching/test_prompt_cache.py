from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.agents.loop.model.usage import Usage
from coterie.scenarios.api_server.caching.breakpoints import Ttl, find_breakpoints
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache, billed_usage, usage_json
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    HOUR,
    assistant,
    make_call,
    sized,
    text,
    tool_result,
    tool_use,
    user,
)


def look_up(cache: PromptCache, call: ApiRequest, *, now: float = 0.0, minimum: int = 1) -> CacheResult:
    prompt = build_prompt_digest(call)
    return cache.look_up(prompt, find_breakpoints(call, prompt), minimum=minimum, now=now)


def ask(cache: PromptCache, call: ApiRequest, *, now: float = 0.0, minimum: int = 1) -> CacheResult:
    """A whole request: looked up at its start, published because its response begins."""
    verdict = look_up(cache, call, now=now, minimum=minimum)
    cache.publish(verdict)
    return verdict


def numbered(count: int, *, marked: Sequence[int] = (), control: dict[str, str] = EPHEMERAL) -> ApiRequest:
    """One user message of blocks of ten tokens each, counted from 1 as the documentation does."""
    blocks = [sized(10, "abcdefghij"[n % 10]) for n in range(1, count + 1)]
    for number in marked:
        blocks[number - 1]["cache_control"] = control
    return make_call(user(*blocks))


def test_the_same_prefix_is_written_once_and_read_afterwards() -> None:
    cache = PromptCache()
    first, second = (ask(cache, numbered(5, marked=[4])) for _ in range(2))
    assert (first.read, first.write_5m, first.uncached) == (0, 40, 10)
    assert (second.read, second.write_5m, second.uncached) == (40, 0, 10)
    assert second.hit == 3


def test_an_entry_is_unreadable_until_the_response_of_its_writer_begins() -> None:
    cache = PromptCache()
    call = numbered(3, marked=[3])
    one, other = look_up(cache, call), look_up(cache, call)
    assert one.write_5m == other.write_5m == 30
    cache.publish(one)
    assert look_up(cache, call).read == 30


def test_the_lookback_checks_twenty_positions_and_no_more() -> None:
    """The documentation's example: with an entry at block 15, a breakpoint at 35 misses it and one at 34 hits."""
    cache = PromptCache()
    ask(cache, numbered(15, marked=[15]))
    missed = look_up(cache, numbered(35, marked=[35]))
    assert (missed.hit, missed.lookups) == (None, 20)
    found = look_up(cache, numbered(34, marked=[34]))
    assert (found.read, found.write_5m, found.lookups) == (150, 190, 20)


def test_a_second_breakpoint_takes_up_the_search_where_the_first_gave_up() -> None:
    cache = PromptCache()
    ask(cache, numbered(15, marked=[15]))
    assert look_up(cache, numbered(40, marked=[30, 40])).read == 150


def test_the_longest_of_several_hits_is_billed() -> None:
    cache = PromptCache()
    ask(cache, numbered(30, marked=[5, 30]))
    assert look_up(cache, numbered(31, marked=[5, 31])).read == 300


def test_only_breakpoints_leave_entries_behind() -> None:
    cache = PromptCache()
    ask(cache, numbered(10, marked=[10]))
    assert look_up(cache, numbered(5, marked=[5])).hit is None


def _tool_rounds(count: int, *, parallel: int, marked: bool = True) -> ApiRequest:
    """*count* rounds of *parallel* tool calls behind a question; the last block is marked."""
    messages = [user(sized(10))]
    for number in range(count):
        ids = [f"toolu_{number}_{n}" for n in range(parallel)]
        messages += [assistant(*map(tool_use, ids)), user(*map(tool_result, ids))]
    if marked:
        messages[-1]["content"][-1]["cache_control"] = EPHEMERAL
    return make_call(*messages)


def test_a_run_of_tool_blocks_costs_one_step_of_the_lookback() -> None:
    cache = PromptCache()
    ask(cache, _tool_rounds(1, parallel=5))
    assert look_up(cache, _tool_rounds(10, parallel=5)).read > 0
    assert look_up(cache, _tool_rounds(11, parallel=5)).hit is None


def test_every_block_inside_a_run_is_checked() -> None:
    cache = PromptCache()
    ids = [f"toolu_{n}" for n in range(30)]
    opening = (user(sized(10)), assistant(*map(tool_use, ids)))
    ask(cache, make_call(*opening, user(tool_result(ids[0], cache_control=EPHEMERAL))))
    results = [tool_result(id_) for id_ in ids]
    results[-1]["cache_control"] = EPHEMERAL
    assert look_up(cache, make_call(*opening, user(*results))).hit == 31


@pytest.mark.parametrize(("control", "life"), [(EPHEMERAL, 300.0), (HOUR, 3600.0)])
def test_an_entry_lives_its_time_from_the_start_of_its_request(control: dict[str, str], life: float) -> None:
    cache = PromptCache()
    call = numbered(3, marked=[3], control=control)
    ask(cache, call, now=1000.0)
    assert look_up(cache, call, now=1000.0 + life).hit == 2
    forgetful = PromptCache()
    ask(forgetful, call, now=1000.0)
    assert look_up(forgetful, call, now=1000.5 + life).hit is None


def test_a_hit_begins_the_life_of_its_entry_anew_even_if_nothing_is_published() -> None:
    cache = PromptCache()
    call = numbered(3, marked=[3])
    ask(cache, call, now=0.0)
    look_up(cache, call, now=290.0)
    assert look_up(cache, call, now=590.0).hit == 2
    assert look_up(cache, call, now=891.0).hit is None


def test_a_read_through_a_short_marker_refreshes_an_entry_by_its_own_hour() -> None:
    cache = PromptCache()
    ask(cache, numbered(3, marked=[3], control=HOUR), now=0.0)
    ask(cache, numbered(3, marked=[3]), now=3000.0)
    assert look_up(cache, numbered(3, marked=[3]), now=6600.0).hit == 2


def test_an_entry_written_again_for_longer_lives_longer() -> None:
    cache = PromptCache()
    ask(cache, numbered(3, marked=[3]), now=0.0)
    ask(cache, numbered(3, marked=[3], control=HOUR), now=10.0)
    assert look_up(cache, numbered(3, marked=[3]), now=3610.0).hit == 2


def test_a_late_response_publishes_entries_that_count_from_the_start() -> None:
    cache = PromptCache()
    call = numbered(3, marked=[3])
    slow = look_up(cache, call, now=0.0)
    cache.publish(slow)
    assert look_up(cache, call, now=301.0).hit is None


def test_breakpoints_below_the_hit_are_written_for_nothing() -> None:
    cache = PromptCache()
    ask(cache, numbered(30, marked=[30]))
    verdict = ask(cache, numbered(30, marked=[5, 30]))
    assert (verdict.read, verdict.write_5m, verdict.write_1h) == (300, 0, 0)
    assert look_up(cache, numbered(5, marked=[5])).read == 50


def test_mixed_lives_are_billed_apart() -> None:
    cache = PromptCache()
    ask(cache, numbered(2, marked=[2], control=HOUR))
    blocks = [sized(10, "abcdefghij"[n % 10]) for n in range(1, 11)]
    blocks[1]["cache_control"] = blocks[4]["cache_control"] = HOUR
    blocks[7]["cache_control"] = EPHEMERAL
    verdict = look_up(cache, make_call(user(*blocks)))
    assert (verdict.read, verdict.write_1h, verdict.write_5m, verdict.uncached) == (20, 30, 30, 20)


def test_an_hour_marker_at_the_hit_adds_nothing_to_the_hour_price() -> None:
    cache = PromptCache()
    ask(cache, numbered(2, marked=[2], control=HOUR))
    blocks = [sized(10, "abcdefghij"[n % 10]) for n in range(1, 5)]
    blocks[1]["cache_control"], blocks[3]["cache_control"] = HOUR, EPHEMERAL
    verdict = look_up(cache, make_call(user(*blocks)))
    assert (verdict.read, verdict.write_1h, verdict.write_5m) == (20, 0, 20)


def test_a_prefix_below_the_minimum_is_silently_not_cached() -> None:
    cache = PromptCache()
    for _ in range(2):
        verdict = ask(cache, numbered(10, marked=[5]), minimum=51)
        assert (verdict.read, verdict.write_5m, verdict.uncached, verdict.writes) == (0, 0, 100, ())
    assert ask(cache, numbered(10, marked=[5]), minimum=50).write_5m == 50


def test_a_marker_below_the_minimum_leaves_the_others_in_force() -> None:
    verdict = look_up(PromptCache(), numbered(10, marked=[1, 10]), minimum=50)
    assert (verdict.write_5m, len(verdict.writes)) == (100, 1)


def test_keys_and_models_share_nothing() -> None:
    cache = PromptCache()
    message = user(sized(10, cache_control=EPHEMERAL))
    ask(cache, make_call(message))
    assert look_up(cache, make_call(message)).read == 10
    assert look_up(cache, make_call(message, key="another")).hit is None
    assert look_up(cache, make_call(message, model="claude-opus-4-8")).hit is None


def test_expired_entries_are_dropped() -> None:
    cache = PromptCache()
    for number in range(5):
        ask(cache, make_call(user(sized(number + 1, cache_control=EPHEMERAL))), now=float(number))
    assert len(cache) == 5
    ask(cache, numbered(1, marked=[1]), now=1000.0)
    assert len(cache) == 1


def test_a_full_cache_drops_what_expires_first() -> None:
    cache = PromptCache(limit=2)
    calls = [make_call(user(sized(number + 1, cache_control=EPHEMERAL))) for number in range(3)]
    ask(cache, calls[0], now=0.0)
    ask(cache, calls[1], now=1.0)
    look_up(cache, calls[0], now=2.0)
    ask(cache, calls[2], now=3.0)
    assert [look_up(cache, call, now=3.0).hit for call in calls] == [0, None, 0]
    assert len(cache) == 2


def _hit_by_hand(life: dict[tuple[int, ...], float], prefix: tuple[int, ...], now: float) -> int:
    lengths = range(len(prefix), max(0, len(prefix) - 20), -1)
    return next((n for n in lengths if life.get(prefix[:n], -1.0) >= now), 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 2), st.sampled_from([0.0, 100.0, 299.0, 301.0])),
        min_size=1,
        max_size=8,
    )
)
def test_a_model_of_one_marker_agrees_with_the_cache(requests: list[tuple[int, int, float]]) -> None:
    """Branches of one conversation, each marked at its end, against the rules written down a second time."""
    cache, life, now = PromptCache(), dict[tuple[int, ...], float](), 0.0
    for length, branch, pause in requests:
        now += pause
        prefix = (*range(length - 1), 100 + branch)
        blocks = [text(f"{number:08}") for number in prefix]
        blocks[-1]["cache_control"] = EPHEMERAL
        expected = _hit_by_hand(life, prefix, now)
        verdict = ask(cache, make_call(user(*blocks)), now=now)
        assert (verdict.read, verdict.write_5m) == (2 * expected, 2 * (length - expected))
        for reached in {prefix[:expected], prefix} - {()}:
            life[reached] = now + 300.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([None, "5m", "1h"]), min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_the_four_figures_add_up_to_the_prompt(ttls: list[Ttl | None], minimum: int) -> None:
    marked = [number for number, ttl in enumerate(ttls) if ttl is not None][:4]
    controls = sorted(str(ttls[number]) for number in marked)  # an hour must come first
    blocks = [sized(10, "abcdefghij"[number % 10]) for number in range(len(ttls))]
    for number, ttl in zip(marked, controls, strict=True):
        blocks[number]["cache_control"] = {"type": "ephemeral", "ttl": ttl}
    cache = PromptCache()
    for _ in range(2):
        verdict = ask(cache, make_call(user(*blocks)), minimum=minimum)
        figures = (verdict.read, verdict.write_5m, verdict.write_1h, verdict.uncached)
        assert sum(figures) == 10 * len(ttls)
        assert min(figures) >= 0


def test_usage_has_the_shape_of_the_api() -> None:
    usage = usage_json(look_up(PromptCache(), numbered(5, marked=[4])), 7, 3)
    split = {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 0}
    assert usage == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 0,
        "cache_creation": split,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
        "service_tier": "standard",
        "inference_geo": "global",
        "iterations": [
            {
                "type": "message",
                "input_tokens": 10,
                "output_tokens": 7,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 40,
                "cache_creation": split,
            }
        ],
    }


def test_what_is_reported_is_what_is_billed() -> None:
    verdict = look_up(PromptCache(), numbered(5, marked=[4], control=HOUR))
    assert billed_usage(verdict, 7) == Usage(input=10, write_1h=40, output=7)
    assert Usage.from_api(usage_json(verdict, 7)) == billed_usage(verdict, 7)


def test_a_conversation_that_moves_its_marker_reads_all_that_was_sent_before() -> None:
    cache = PromptCache()
    messages: list[dict[str, Any]] = []
    sent = 0
    for number in range(6):
        messages += [user(sized(10 + number)), assistant(sized(5))]
        total = sum(10 + n for n in range(number + 1)) + 5 * number
        verdict = ask(cache, make_call(*messages[:-1], cache_control=EPHEMERAL))
        assert (verdict.read, verdict.write_5m, verdict.uncached) == (sent, total - sent, 0)
        sent = total
