import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.scenarios.api_server.request.api_request import ApiCaller
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.http_faults import HttpFault, HttpFaultPlan
from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ApiAnswer, ask, control, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, sized

ANYONE = ApiCaller(key="k")


def plan(*faults: object, seed: int = 0) -> HttpFaultPlan:
    made = HttpFaultPlan(seed)
    for fault in faults:
        made.add(HttpFault.from_mapping(fault))
    return made


def kinds(faults: HttpFaultPlan, count: int, caller: ApiCaller = ANYONE) -> list[str | None]:
    taken = [faults.next_fault(caller) for _ in range(count)]
    return [fault.kind if fault else None for fault in taken]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("overlaoded", "unknown fault 'overlaoded'; did you mean 'overloaded'?"),
        ("x", "unknown fault 'x'; expected one of cut, disconnect, error, error_event, overloaded, rate_limit, slow"),
        (["cut"], "a fault must be the name of a kind, or a mapping with a kind; expected one of cut"),
        (None, "a fault must be the name of a kind, or a mapping with a kind"),
        ({}, "a fault has no `kind`; expected one of cut"),
        ({"kind": ["cut"]}, "unknown fault ['cut']"),
        ({"kind": "cut", "aftr": 1}, "a fault has no key 'aftr'; did you mean 'after'?"),
        ({"kind": "cut", 5: 1}, "a fault has no key 5; expected one of"),
        (
            {"kind": "cut", "retry_after": 1},
            "the fault cut cannot have 'retry_after', a key of error, over",
        ),
        ({"kind": "cut", "after": -1}, "the fault's after must be a whole number from 0, not -1"),
        ({"kind": "cut", "after": True}, "the fault's after must be a whole number from 0, not True"),
        ({"kind": "cut", "count": 0}, "the fault's count must be a whole number from 1, not 0"),
        ({"kind": "cut", "count": "ever"}, "the fault's count must be a whole number from 1, or always, not 'ever'"),
        ({"kind": "cut", "agent": ""}, "the fault's agent must be text, not ''"),
        ({"kind": "cut", "turn": "1"}, "the fault's turn must be a whole number from 1, not '1'"),
        ({"kind": "cut", "probability": 1.1}, "the fault's probability must be a number from 0 to 1, not 1.1"),
        *(
            ({"kind": "slow", "seconds": value}, f"the fault's seconds must be a number of seconds, not {value}"[:60])
            for value in (float("nan"), float("inf"), -1, 10**400)
        ),
        ({"kind": "cut", "seconds": 3}, "the fault cut cannot have 'seconds', a key of"),
        ({"kind": "error", "status": 200}, "the fault's status must be from 400 to 599, not 200"),
        ({"kind": "error", "error": "api_eror"}, "unknown error type 'api_eror'; did you mean 'api_error'?"),
    ],
)
def test_invalid_fault_is_refused_with_a_hint(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=r"fault|error type") as caught:
        HttpFault.from_mapping(value)
    assert str(caught.value).startswith(reason)


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("cut")
KEYS = st.sampled_from(["kind", "count", "agent", "turn", "after", "seconds", "status", "error"]) | st.text(max_size=3)


@given(JSON | st.lists(JSON) | st.dictionaries(KEYS, JSON, max_size=4))
def test_anything_is_a_fault_or_a_value_error(value: object) -> None:
    try:
        fault = HttpFault.from_mapping(value)
    except ValueError:
        return
    assert HttpFault.from_mapping(fault.to_mapping()) == fault


def test_the_first_fault_that_is_meant_for_a_request_strikes() -> None:
    faults = plan({"kind": "cut", "agent": "b"}, {"kind": "stall", "count": 2}, "overloaded")
    assert kinds(faults, 2) == ["stall", "stall"]
    assert kinds(faults, 2, ApiCaller(key="k", agent="b")) == ["cut", "overloaded"]
    assert kinds(faults, 1) == [None]
    assert kinds(plan({"kind": "cut", "count": "always"}), 4) == ["cut"] * 4
    assert kinds(plan({"kind": "cut", "probability": 0.0}, "stall"), 2) == ["stall", None]


def test_each_condition_excludes_other_requests() -> None:
    caller = ApiCaller(key="k", agent="a", purpose="recall", turn=2)
    for condition in ({"agent": "a"}, {"purpose": "recall"}, {"turn": 2}, {"model": "haiku"}):
        fault = HttpFault.from_mapping({"kind": "cut", **condition})
        assert fault.matches(caller, "claude-haiku-5-5")
        assert not fault.matches(ApiCaller(key="k", agent="z", turn=9), "claude-opus-5-5")
        assert not fault.matches(ANYONE)


def test_fault_draws_only_for_matching_requests() -> None:
    """Requests of other agents in between do not change what strikes this one."""
    fault = {"kind": "cut", "agent": "a", "count": "always", "probability": 0.5}
    agent, alone, mixed = ApiCaller(key="k", agent="a"), plan(fault), plan(fault)
    expected = kinds(alone, 32, agent)
    seen = []
    for _ in range(32):
        assert kinds(mixed, 1, ApiCaller(key="k", agent="b")) == [None]
        seen += kinds(mixed, 1, agent)
    assert seen == expected


def test_fault_list_is_json_with_remaining_counts_and_clearing_never_reuses_an_id() -> None:
    faults = plan({"kind": "cut", "count": 2, "agent": "a"}, {"kind": "slow", "count": "always"})
    faults.next_fault(ApiCaller(key="k", agent="a"))
    assert msgspec.json.decode(msgspec.json.encode(faults.list())) == [
        {"id": 1, "kind": "cut", "count": 2, "agent": "a", "probability": 1.0, "after": 3, "remaining": 1},
        {"id": 2, "kind": "slow", "count": "always", "probability": 1.0, "seconds": 0.1, "remaining": None},
    ]
    for _ in range(998):
        faults.add(HttpFault(kind="cut"))
    with pytest.raises(ApiError, match="there are 1,000 faults already; clear them first"):
        faults.add(HttpFault(kind="cut"))
    faults.clear()
    assert faults.list() == ()
    assert kinds(faults, 1) == [None]
    assert faults.add(HttpFault(kind="cut")) == 1_001


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
        ({"kind": "error", "status": 503}, 503, "api_error", None),
        ({"kind": "error", "status": 504}, 504, "timeout_error", None),
        ({"kind": "error", "error": "permission_error"}, 403, "permission_error", None),
        ({"kind": "error", "status": 500, "error": "overloaded_error"}, 500, "overloaded_error", None),
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
