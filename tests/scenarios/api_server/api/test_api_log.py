"""The request log and the rate limits, as a client of the API meets them and in their bounds."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.scenarios.api_server.api import rate_limiter
from coterie.scenarios.api_server.api.rate_limiter import RateLimiter, RateLimits
from coterie.scenarios.api_server.request.errors import ApiError
from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ask, control, named, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, HOUR, sized, text, tool

OKAY = "default: [{text: okay, times: always}]"
LIMIT = "anthropic-ratelimit-"


async def logged(served: Served, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    for body in bodies:
        assert (await ask(served, body)).status == 200
    entries: list[dict[str, Any]] = (await control(served, "requests")).json["requests"]
    return entries


async def test_an_entry_says_all_about_its_request() -> None:
    async with open_served(OKAY) as served:
        answer = await ask(served, request(stream=True, model="haiku"), **named("coder", 3), x_coterie_incarnation="2")
        [entry] = (await control(served, "requests")).json["requests"]
        message = answer.events[0]["message"]
        assert message["model"] == "haiku", "an alias is repeated as it was written"
        usage = answer.events[-2]["usage"]
        assert abs(entry.pop("time") - served.clock.now()) < 5
    assert 0 <= entry.pop("seconds") < 5
    tools, system, prefix = (entry.pop(f"{name}_hash") for name in ("tools", "system", "prefix"))
    assert tools == system != prefix, "without tools and system there is nothing between them"
    assert len(bytes.fromhex(prefix)) == 16
    assert Decimal(entry.pop("cost_usd")) == known_models().get("haiku").cost(Usage.from_api(usage))
    assert entry == {
        "number": 1,
        "request_id": answer.headers["request-id"],
        "path": "/v1/messages",
        "status": 200,
        "error": None,
        "agent": "coder",
        "incarnation": 2,
        "purpose": "turn",
        "turn": 3,
        "model": "claude-haiku-5-5",
        "message_id": message["id"],
        "reply": "default[1]",
        "fault": None,
        "stop_reason": "end_turn",
        "stream": True,
        "usage": usage,
        "cache": "off",
    }


async def test_no_key_is_in_the_log_and_counting_is_free() -> None:
    async with open_served(OKAY) as served:
        await ask(served, path="/v1/messages/count_tokens", x_api_key="sk-very-secret")
        await ask(served, b"{", x_api_key="sk-very-secret")
        assert b"sk-very-secret" not in (await control(served, "requests")).body
        entry, _ = served.requests
    assert (entry["path"], entry["model"], entry["usage"]) == ("/v1/messages/count_tokens", "claude-opus-5", None)


async def test_costs_are_exact_and_cache_states_are_named() -> None:
    """Opus 5: input 5, output 25, writes 6.25 and 10, reads 0.50 dollars for a million; a reply of one token."""
    short = sized(600, cache_control=EPHEMERAL)
    longer = [sized(600, cache_control=HOUR), sized(500, "y", cache_control=EPHEMERAL)]
    bodies = [request("hey", system=system) for system in ([sized(600)], [short], [short], longer, longer)]
    async with open_served(OKAY) as served:
        entries = await logged(served, *bodies)
    assert [entry["cache"] for entry in entries] == ["off", "miss", "hit", "partial", "hit"]
    assert [Decimal(entry["cost_usd"]) for entry in entries] == [
        Decimal(text) + Decimal("0.00003")
        for text in ("0.003", "0.00375", "0.0003", "0.003425", "0.00055")  # 600*5, 600*6.25, 600*.5, +500*6.25, 1100*.5
    ]
    assert all("E" not in entry["cost_usd"] for entry in entries)


async def test_hashes_tell_how_far_two_requests_share_their_prefix() -> None:
    tools, system = [tool()], [text("be brief")]
    async with open_served(OKAY) as served:
        entries = await logged(
            served,
            request("a", tools=tools, system=system),
            request("a", tools=tools, system=[text("be brief", cache_control=EPHEMERAL)]),
            request("b", tools=tools, system=system),
            request("a", tools=tools, system="be long"),
            request("a", tools=[tool("Write")], system=system),
        )
    changes = [
        {name for name in ("tools", "system", "prefix") if entry[f"{name}_hash"] != entries[0][f"{name}_hash"]}
        for entry in entries
    ]
    assert changes == [set(), set(), {"prefix"}, {"system", "prefix"}, {"tools", "system", "prefix"}]


async def test_since_leaves_out_what_was_seen() -> None:
    async with open_served(OKAY) as served:
        await logged(served, *[request()] * 5)
        for since, expected in (("0", [1, 2, 3, 4, 5]), ("3", [4, 5]), ("5", []), ("999999999", [])):
            entries = (await control(served, f"requests?since={since}")).json["requests"]
            assert [entry["number"] for entry in entries] == expected


async def test_requests_run_out_and_come_back() -> None:
    async with open_served(OKAY, rates=RateLimits(requests=2)) as served:
        left = [(await ask(served)).headers[f"{LIMIT}requests-remaining"] for _ in range(2)]
        refused = await ask(served)
        assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")
        assert refused.headers[f"{LIMIT}requests-limit"] == "2"
        assert refused.headers[f"{LIMIT}requests-reset"].endswith("Z")
        assert (await ask(served, x_api_key="another-key")).status == 200
        assert (await ask(served, request(model="haiku"))).status == 200
        await control(served, "clock", {"advance": int(refused.headers["retry-after"])})
        assert (await ask(served)).status == 200
    assert left == ["1", "0"]
    assert 25 <= int(refused.headers["retry-after"]) <= 31
    assert "2 requests per minute for claude-opus-5" in refused.error


NOW = 1_790_000_000.0


def header(limiter: RateLimiter, name: str, now: float = NOW) -> str:
    return dict(limiter.headers("key", "model", now))[f"anthropic-ratelimit-{name}"]


def refused(limiter: RateLimiter, now: float = NOW) -> ApiError:
    with pytest.raises(ApiError) as caught:
        limiter.admit("key", "model", now)
    return caught.value


def test_without_limits_everything_is_admitted_and_nothing_is_said() -> None:
    for limit in (0, -1):
        with pytest.raises(ValueError, match="requests"):
            RateLimits(requests=limit)
    limiter = RateLimiter(RateLimits())
    for _ in range(1000):
        limiter.admit("key", "model", NOW)
    limiter.settle("key", "model", input_tokens=10**9, output_tokens=10**9, now=NOW)
    limiter.admit("key", "model", NOW)
    assert limiter.headers("key", "model", NOW) == ()


@pytest.mark.parametrize(
    ("limit", "moments"),
    [
        pytest.param(60, [(0, True)] * 60 + [(0.9, False), (1.1, True), (1.2, False)], id="refills evenly"),
        pytest.param(2, [(0, True), (3600, True), (3600, True), (3600, False)], id="holds at most a minute"),
        pytest.param(60, [(0, True)] * 60 + [(-3600, False), (-3600 + 1.1, True)], id="the clock is set back"),
    ],
)
def test_a_bucket_admits_a_request_at_a_moment(limit: int, moments: list[tuple[float, bool]]) -> None:
    limiter = RateLimiter(RateLimits(requests=limit))
    for moment, is_admitted in moments:
        if is_admitted:
            limiter.admit("key", "model", NOW + moment)
        else:
            refused(limiter, NOW + moment)


@pytest.mark.parametrize(
    ("limits", "words"),
    [(RateLimits(input_tokens=6000), "6,000 input tokens"), (RateLimits(output_tokens=6000), "6,000 output tokens")],
)
def test_overdrawn_tokens_hold_back_the_next_request(limits: RateLimits, words: str) -> None:
    limiter = RateLimiter(limits)
    limiter.admit("key", "model", NOW)
    limiter.settle("key", "model", input_tokens=7000, output_tokens=7000, now=NOW)
    error = refused(limiter)
    assert words in error.message
    assert dict(error.headers)["retry-after"] == "11"
    limiter.admit("key", "model", NOW + 11)


def test_of_several_limits_the_longest_wait_is_named_and_a_refusal_not_counted() -> None:
    limiter = RateLimiter(RateLimits(requests=5, output_tokens=60))
    limiter.settle("key", "model", input_tokens=0, output_tokens=180, now=NOW)
    error = refused(limiter)
    assert header(limiter, "requests-remaining") == "5"
    assert "output tokens" in error.message
    assert dict(error.headers)["retry-after"] == "122"


def test_headers_tell_limit_remaining_and_reset() -> None:
    limiter = RateLimiter(RateLimits(requests=10, input_tokens=60_000, output_tokens=8_000))
    limiter.admit("key", "model", NOW)
    limiter.settle("key", "model", input_tokens=2_600, output_tokens=400, now=NOW)
    assert limiter.headers("key", "model", NOW) == (
        ("anthropic-ratelimit-requests-limit", "10"),
        ("anthropic-ratelimit-requests-remaining", "9"),
        ("anthropic-ratelimit-requests-reset", "2026-09-21T14:13:26Z"),
        ("anthropic-ratelimit-input-tokens-limit", "60000"),
        ("anthropic-ratelimit-input-tokens-remaining", "57000"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-09-21T14:13:23Z"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-09-21T14:13:23Z"),
        ("anthropic-ratelimit-tokens-limit", "8000"),
        ("anthropic-ratelimit-tokens-remaining", "8000"),
        ("anthropic-ratelimit-tokens-reset", "2026-09-21T14:13:23Z"),
    )


def test_accounts_with_full_buckets_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "ACCOUNTS", 10)
    limiter = RateLimiter(RateLimits(requests=1))
    limiter.admit("early", "model", NOW)
    for number in range(8):
        limiter.admit(f"before{number}", "model", NOW)
    limiter.admit("key", "model", NOW + 59)
    for number in range(8):
        limiter.admit(f"after{number}", "model", NOW + 61)
        assert len(limiter._accounts) <= 10  # noqa: SLF001 - the bound has no other face
    refused(limiter, NOW + 62)


def test_more_accounts_than_can_be_remembered_forget_the_least_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "ACCOUNTS", 10)
    limiter = RateLimiter(RateLimits(requests=1))
    limiter.admit("key", "model", NOW)
    for number in range(100):
        limiter.admit(f"key{number}", "model", NOW)
        assert len(limiter._accounts) <= 10  # noqa: SLF001 - the bound has no other face
        limiter.settle("key", "model", input_tokens=0, output_tokens=0, now=NOW)
    limiter.admit("key0", "model", NOW)
    refused(limiter)


@given(
    requests=st.integers(1, 10**5),
    tokens=st.integers(1, 10**8),
    used=st.integers(0, 10**8),
    asked=st.integers(1, 50),
    now=st.floats(1e9, 3e9),
)
def test_request_after_the_announced_wait_is_admitted(
    requests: int, tokens: int, used: int, asked: int, now: float
) -> None:
    limiter = RateLimiter(RateLimits(requests=requests, output_tokens=tokens))
    try:
        for _ in range(asked):
            limiter.admit("key", "model", now)
            limiter.settle("key", "model", input_tokens=0, output_tokens=used, now=now)
    except ApiError as error:
        now += int(dict(error.headers)["retry-after"])
        limiter.admit("key", "model", now)
