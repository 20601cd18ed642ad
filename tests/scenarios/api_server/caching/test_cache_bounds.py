"""Bounds of the memory of the prompt cache and of its diagnostics."""

from coterie.scenarios.api_server.caching.breakpoints import find_breakpoints
from coterie.scenarios.api_server.caching.cache_diagnostics import CacheDiagnoser
from coterie.scenarios.api_server.caching.prompt_cache import CacheResult, PromptCache
from coterie.scenarios.api_server.caching.prompt_digest import build_prompt_digest
from tests.scenarios.api_server.request_samples import EPHEMERAL, make_call, sized, tool, user


def look_up(cache: PromptCache, tokens: int, *, now: float) -> CacheResult:
    call = make_call(user(sized(tokens, cache_control=EPHEMERAL)))
    prompt = build_prompt_digest(call)
    return cache.look_up(prompt, find_breakpoints(call, prompt), minimum=1, now=now)


def ask(cache: PromptCache, tokens: int, *, now: float) -> None:
    """A whole request: looked up at its start, published because its response begins."""
    cache.publish(look_up(cache, tokens, now=now))


def test_expired_entries_are_dropped() -> None:
    cache = PromptCache()
    for number in range(5):
        ask(cache, number + 1, now=float(number))
    assert len(cache) == 5
    ask(cache, 9, now=1000.0)
    assert len(cache) == 1


def test_a_full_cache_drops_what_expires_first() -> None:
    cache = PromptCache(limit=2)
    ask(cache, 1, now=0.0)
    ask(cache, 2, now=1.0)
    look_up(cache, 1, now=2.0)
    ask(cache, 3, now=3.0)
    assert [look_up(cache, tokens, now=3.0).hit for tokens in (1, 2, 3)] == [0, None, 0]
    assert len(cache) == 2


def test_least_recently_used_message_is_dropped_first_and_sooner_if_prompts_are_long() -> None:
    prompt = build_prompt_digest(make_call(user(sized(10)), tools=[tool("A"), tool("B")], system=[sized(5)]))

    def remembered(diagnoser: CacheDiagnoser, *ids: str) -> list[bool]:
        return [diagnoser.diagnose(id_, "m", prompt) is None for id_ in ids]

    few = CacheDiagnoser(messages_limit=2)
    few.remember("msg_1", "m", prompt)
    few.remember("msg_2", "m", prompt)
    few.diagnose("msg_1", "m", prompt)
    few.remember("msg_3", "m", prompt)
    assert remembered(few, "msg_1", "msg_2", "msg_3") == [True, False, True]
    short = CacheDiagnoser(positions_limit=9)
    for id_ in ("msg_0", "msg_1", "msg_2", "msg_3", "msg_3"):
        short.remember(id_, "m", prompt)
    assert remembered(short, "msg_0", "msg_1", "msg_2", "msg_3") == [False, False, True, True]
