"""The `/_coterie/` side over HTTP: its token, its clock, its fault list, and everything it refuses."""

from typing import Any

from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ask, control, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, sized

CONTROLS = ("clock", "faults", "signal", "requests")
CACHED = request(system=[sized(600, cache_control=EPHEMERAL)])


async def refused(served: Served, name: str, body: Any, method: str | None = None) -> str:
    answer = await control(served, name, body, method=method)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error"), answer.body
    return answer.error


async def test_nothing_opens_without_the_token_and_a_key_is_none() -> None:
    async with open_served(token="right") as served:  # noqa: S106 - a token of this test alone
        for name in (*CONTROLS, "no-such-control"):
            for token in ("wrong", "tökén"):
                answer = await control(served, name, token=token)
                assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
                assert "x-coterie-token" in answer.error
                assert "right" not in answer.error
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


CLOCK = ({"advance": value} for value in (None, "300", True, [1], 10**400, 1e300, -1e12))
FAULTS = {
    "unknown fault 'overlaoded'; did you mean 'overloaded'?": {"kind": "overlaoded"},
    "a fault is a kind or a mapping": {"faults": ["cut", 7]},
    "unknown fault ['cut']": {"faults": ["cut", {"kind": ["cut"]}]},
}
NO_OBJECTS = (b"{", b"[]", b"null", b'"x"', b'{"advance": NaN}', b'{"name": "\xff"}', b"[" * 100_000, b'{"a": 1e999}')


async def test_invalid_body_is_refused_with_the_reason_and_changes_nothing() -> None:
    async with open_served() as served:
        for advance in ({}, *CLOCK):
            assert (await refused(served, "clock", advance)).startswith("advance: ")
        for words, fault in FAULTS.items():
            assert words in await refused(served, "faults", fault)
        for signal in ({}, {"name": ""}, {"name": 5}, {"name": ["a"]}):
            assert (await refused(served, "signal", signal)).startswith("name: ")
        for since in ("-1", "x", "1.5", "", "9" * 5000):
            assert (await refused(served, f"requests?since={since}", b"", "GET")).startswith("since: ")
        for name in ("clock", "faults", "signal"):
            for body in NO_OBJECTS:
                assert "must be a JSON object" in await refused(served, name, body)
        assert (await control(served, "clock")).json["offset"] == 0
        assert (await control(served, "faults")).json == {"faults": []}
        assert (await control(served, "signal")).json == {"raised": []}
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


async def test_a_wrong_method_and_an_unknown_control_are_told_the_right_ones() -> None:
    async with open_served() as served:
        for name, method in (("clock", "PUT"), ("signal", "DELETE"), ("requests", "POST")):
            answer = await control(served, name, {"advance": 1}, method=method)
            assert (answer.status, answer.json["error"]["type"]) == (405, "invalid_request_error")
            assert "use GET" in answer.error
        answer = await control(served, "clocks")
        assert answer.status == 404
        assert all(f"/_coterie/{name}" in answer.error for name in CONTROLS)
        assert (await control(served, "requests")).json == {"requests": []}, "the control side is not in the log"
