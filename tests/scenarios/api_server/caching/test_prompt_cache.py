from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.scenarios.api_server.caching.breakpoints import Ttl, find_breakpoints
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache
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


def test_every_block_inside_a_run_is_checked() -> None:
    cache = PromptCache()
    ids = [f"toolu_{n}" for n in range(30)]
    opening = (user(sized(10)), assistant(*map(tool_use, ids)))
    ask(cache, make_call(*opening, user(tool_result(ids[0], cache_control=EPHEMERAL))))
    results = [tool_result(id_) for id_ in ids]
    results[-1]["cache_control"] = EPHEMERAL
    assert look_up(cache, make_call(*opening, user(*results))).hit == 31


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
