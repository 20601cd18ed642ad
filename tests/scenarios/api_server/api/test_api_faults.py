"""Faults over HTTP: each kind as a raw client sees it, and the selection of requests."""

import time
from typing import Any

import pytest

from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ApiAnswer, ask, control, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, sized

STREAM = request(stream=True)
SAID = "default: [{text: said, times: always}]"
WHOLE = 7
"""Events of the stream that carries one short text."""


async def answer_with_fault(fault: Any, body: Any = None) -> tuple[ApiAnswer, dict[str, Any]]:
    """The answer to a request that *fault* strikes and its log entry; the next one must be as always."""
    async with open_served(SAID) as served:
        await control(served, "faults", {"faults": [fault]})
        answer = await ask(served, body)
        [entry] = served.requests
        after = await ask(served, STREAM)
        assert (after.status, len(after.events)) == (200, WHOLE)
    return answer, entry


@pytest.mark.parametrize("body", [request(), STREAM])
@pytest.mark.parametrize(
    ("fault", "status", "kind", "retry_after"),
    [
        ("rate_limit", 429, "rate_limit_error", None),
        ({"kind": "rate_limit", "retry_after": 7}, 429, "rate_limit_error", "7"),
        ({"kind": "overloaded", "retry_after": 0.5}, 529, "overloaded_error", "0.5"),
        ({"kind": "overloaded", "retry_after": 86_400_000}, 529, "overloaded_error", "86400000"),
        ("error", 500, "api_error", None),
        ({"kind": "error", "status": 504}, 504, "timeout_error", None),
        ({"kind": "error", "error": "permission_error"}, 403, "permission_error", None),
    ],
)
async def test_an_error_takes_the_place_of_the_answer(
    fault: Any, status: int, kind: str, retry_after: str | None, body: dict[str, Any]
) -> None:
    answer, entry = await answer_with_fault(fault, body)
    assert (answer.status, answer.json["error"]["type"]) == (status, kind)
    assert answer.error.startswith("injected fault: ")
    assert answer.headers.get("retry-after") == retry_after
    assert (entry["status"], entry["error"], entry["usage"]) == (status, kind, None)
    assert entry["fault"] == (fault if isinstance(fault, str) else fault["kind"])


@pytest.mark.parametrize(("fault", "body"), [("disconnect", request()), ("disconnect", STREAM), ("cut", request())])
async def test_a_disconnect_and_a_cut_of_a_whole_answer_come_before_any_byte(fault: str, body: dict[str, Any]) -> None:
    answer, entry = await answer_with_fault(fault, body)
    assert (answer.status, answer.body, answer.is_whole) == (None, b"", False)
    assert (entry["fault"], entry["error"]) == (fault, "client_gone")


@pytest.mark.parametrize("after", [0, 1, 4, WHOLE - 1])
async def test_a_cut_lets_so_many_events_through(after: int) -> None:
    answer, entry = await answer_with_fault({"kind": "cut", "after": after}, STREAM)
    assert (answer.status, answer.is_whole, len(answer.events)) == (200, False, after)
    assert (entry["fault"], entry["error"]) == ("cut", "client_gone")
    assert entry["usage"] is not None


async def test_an_error_event_ends_a_stream_in_order_and_is_else_an_error() -> None:
    answer, entry = await answer_with_fault({"kind": "error_event", "after": 2}, STREAM)
    assert (answer.status, answer.is_whole) == (200, True)
    *before, last = answer.events
    assert [event["type"] for event in before] == ["message_start", "content_block_start"]
    error = {"type": "overloaded_error", "message": "injected fault: error_event"}
    assert last == {"type": "error", "error": error}
    assert (entry["status"], entry["fault"]) == (200, "error_event")
    whole, _ = await answer_with_fault({"kind": "error_event", "error": "api_error"})
    assert (whole.status, whole.json["error"]["type"]) == (500, "api_error")


@pytest.mark.parametrize(
    ("kind", "pause", "body", "least"),
    [("stall", 0.05, request(), 0.05), ("stall", 0.05, STREAM, 0.05), ("slow", 0.01, STREAM, 0.01 * WHOLE)],
)
async def test_stalled_or_slow_answer_comes_whole(kind: str, pause: float, body: dict[str, Any], least: float) -> None:
    began = time.perf_counter()
    answer, _ = await answer_with_fault({"kind": kind, "seconds": pause}, body)
    assert time.perf_counter() - began >= least
    assert answer.is_whole
    if body is STREAM:
        assert len(answer.events) == WHOLE


async def test_a_refused_request_writes_no_cache() -> None:
    cached = request(system=[sized(600, cache_control=EPHEMERAL)])
    async with open_served(SAID) as served:
        await control(served, "faults", {"kind": "overloaded"})
        assert (await ask(served, cached)).status == 529
        assert (await ask(served, cached)).json["usage"]["cache_creation_input_tokens"] == 600
