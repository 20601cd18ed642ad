"""The request log and the rate limits as a client of the API meets them."""

from decimal import Decimal
from typing import Any

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.scenarios.api_server.api.rate_limiter import RateLimits
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
