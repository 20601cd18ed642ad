"""The `/_coterie/` side over HTTP: its token, its clock, its fault list, and everything it refuses."""

from typing import Any

import pytest

from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ApiAnswer, ask, control, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, sized

CONTROLS = ("clock", "faults", "signal", "requests")
CACHED = request(system=[sized(600, cache_control=EPHEMERAL)])


async def refused(served: Served, name: str, body: Any, method: str | None = None) -> str:
    answer = await control(served, name, body, method=method)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error"), answer.body
    return answer.error


@pytest.mark.parametrize("name", [*CONTROLS, "no-such-control"])
@pytest.mark.parametrize("token", ["wrong", "tökén"])
async def test_nothing_opens_without_the_token(name: str, token: str) -> None:
    async with open_served(token="right") as served:  # noqa: S106 - a token of this test alone
        answer = await control(served, name, token=token)
        assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
        assert "x-coterie-token" in answer.error
        assert "right" not in answer.error


async def test_api_key_does_not_open_the_control_endpoint() -> None:
    async with open_served() as served:
        assert (await ask(served, path="/_coterie/requests", method="GET")).status == 401


async def test_the_clock_can_be_read_and_moved() -> None:
    async with open_served() as served:
        before = (await control(served, "clock")).json
        moved = (await control(served, "clock", {"advance": 3600})).json
        back = (await control(served, "clock", {"advance": -0.5})).json
    assert before["offset"] == 0
    assert (moved["offset"], back["offset"]) == (3600, 3599.5)
    assert 3600 <= moved["now"] - before["now"] < 3610


async def test_moving_the_clock_ages_the_cache() -> None:
    async def read(served: Served) -> int:
        tokens: int = (await ask(served, CACHED)).json["usage"]["cache_read_input_tokens"]
        return tokens

    async with open_served() as served:
        assert [await read(served), await read(served)] == [0, 600]
        await control(served, "clock", {"advance": 290})
        assert await read(served) == 600
        await control(served, "clock", {"advance": 301})
        assert await read(served) == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"advance": None},
        {"advance": "300"},
        {"advance": True},
        {"advance": [1]},
        {"advance": 10**400},
        {"advance": 1e300},
        {"advance": -1e12},
    ],
)
async def test_invalid_clock_advance_is_refused(body: dict[str, Any]) -> None:
    async with open_served() as served:
        assert (await refused(served, "clock", body)).startswith("advance: ")
        assert (await control(served, "clock")).json["offset"] == 0


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"x"', b'{"advance": NaN}', b'{"name": "\xff"}', b"[" * 100_000, b'{"a": 1e999}']
)
@pytest.mark.parametrize("name", ["clock", "faults", "signal"])
async def test_a_body_that_is_no_json_object_is_refused(name: str, body: bytes) -> None:
    async with open_served() as served:
        assert "must be a JSON object" in await refused(served, name, body)
        assert (await ask(served)).status == 200


async def test_faults_are_added_listed_and_cleared() -> None:
    async with open_served() as served:
        assert (await control(served, "faults", {"kind": "overloaded", "agent": "a"})).json == {"added": [1]}
        several = {"faults": ["cut", {"kind": "error", "status": 504, "count": "always", "probability": 0.5}]}
        assert (await control(served, "faults", several)).json == {"added": [2, 3]}
        listed = (await control(served, "faults")).json["faults"]
        assert [fault["kind"] for fault in listed] == ["overloaded", "cut", "error"]
        assert listed[0]["remaining"] == 1
        assert (listed[2]["error"], listed[2]["remaining"]) == ("timeout_error", None)
        assert (await control(served, "faults", method="DELETE")).json == {"faults": []}
        assert (await control(served, "faults")).json == {"faults": []}
        assert (await ask(served)).status == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "overlaoded"}, "unknown fault 'overlaoded'; did you mean 'overloaded'?"),
        ({"faults": ["cut", 7]}, "a fault is a kind or a mapping"),
        ({"faults": ["cut", {"kind": ["cut"]}]}, "unknown fault ['cut']"),
    ],
)
async def test_a_wrong_fault_is_refused_with_the_reason_and_none_is_added(body: dict[str, Any], words: str) -> None:
    async with open_served() as served:
        assert words in await refused(served, "faults", body)
        assert (await control(served, "faults")).json == {"faults": []}


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": 5}, {"name": ["a"]}])
async def test_a_signal_needs_a_name(body: dict[str, Any]) -> None:
    async with open_served() as served:
        assert (await refused(served, "signal", body)).startswith("name: ")


@pytest.mark.parametrize(("name", "method"), [("clock", "PUT"), ("signal", "DELETE"), ("requests", "POST")])
async def test_a_wrong_method_is_told_the_right_ones(name: str, method: str) -> None:
    async with open_served() as served:
        answer = await control(served, name, {"advance": 1}, method=method)
        assert (answer.status, answer.json["error"]["type"]) == (405, "invalid_request_error")
        assert "use GET" in answer.error


async def test_an_unknown_control_is_told_the_known_ones() -> None:
    async with open_served() as served:
        answer: ApiAnswer = await control(served, "clocks")
        assert answer.status == 404
        assert all(f"/_coterie/{name}" in answer.error for name in CONTROLS)


@pytest.mark.parametrize("since", ["-1", "x", "1.5", "", "9" * 5000])
async def test_request_log_with_invalid_since_is_refused(since: str) -> None:
    async with open_served() as served:
        assert (await refused(served, f"requests?since={since}", b"", "GET")).startswith("since: ")


async def test_the_control_side_is_not_in_the_request_log() -> None:
    async with open_served() as served:
        await control(served, "clock")
        await control(served, "nothing")
        assert (await control(served, "requests")).json == {"requests": []}
