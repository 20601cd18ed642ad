from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from coterie.scenarios.api_server.request.api_request import ApiRequest
from tests.scenarios.api_server.request_samples import EPHEMERAL, make_call, sized, user


def look_up(cache: PromptCache, call: ApiRequest, *, now: float) -> CacheResult:
    prompt = build_prompt_digest(call)
    return cache.look_up(prompt, find_breakpoints(call, prompt), minimum=1, now=now)


def ask(cache: PromptCache, call: ApiRequest, *, now: float) -> CacheResult:
    """A whole request: looked up at its start, published because its response begins."""
    verdict = look_up(cache, call, now=now)
    cache.publish(verdict)
    return verdict


def test_expired_entries_are_dropped() -> None:
    cache = PromptCache()
    for number in range(5):
        ask(cache, make_call(user(sized(number + 1, cache_control=EPHEMERAL))), now=float(number))
    assert len(cache) == 5
    ask(cache, make_call(user(sized(9, cache_control=EPHEMERAL))), now=1000.0)
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
