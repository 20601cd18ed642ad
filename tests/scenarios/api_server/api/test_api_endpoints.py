"""Errors over HTTP, the list of models, and the `/_coterie/` side with everything it refuses."""

from typing import Any

import pytest

from coterie.agents.loop.model.catalog import load_models
from coterie.scenarios.api_server.http.http_connection import HttpLimits
from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import ask, control, open_peer, open_strict_sdk, request
from tests.scenarios.api_server.request_samples import EPHEMERAL, sized, text, user

BEARER: dict[str, Any] = {"authorization": "Bearer test-key", "x_api_key": None}
HOLLOW = {"model": "claude-opus-5", "max_tokens": 1, "messages": []}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages?beta=true", "/v1/messages/"])
async def test_both_ways_to_authenticate_work_with_both_versions(path: str) -> None:
    """Both are the same client, whose replies are served in order."""
    async with open_served("default: [one, two, three, four, five, six]") as served:
        for version, told in (("2023-06-01", ["one", "two", "three"]), ("2026-10-21", ["four", "five", "six"])):
            ways: list[dict[str, Any]] = [{}, BEARER, {"authorization": "bEaReR  test-key", "x_api_key": None}]
            answers = [await ask(served, path=path, anthropic_version=version, **auth) for auth in ways]
            assert [answer.json["content"][0]["text"] for answer in answers] == told


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")]
)
async def test_request_without_a_key_or_a_version_is_refused(method: str, path: str) -> None:
    async with open_served() as served:
        for headers in ({}, {"x_api_key": ""}, {"authorization": "Basic dXNlcg=="}, {"authorization": ""}):
            answer = await ask(served, method=method, path=path, **{"x_api_key": None, **headers})
            assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
            assert "x-api-key" in answer.error
        for version in (None, "", "2024-01-01", "latest") if method == "POST" else ():
            answer = await ask(served, path=path, anthropic_version=version)
            assert answer.status == 400
            assert answer.error.startswith("anthropic-version: header is required")


REFUSED: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "an unknown endpoint": ({"path": "/v1/complete"}, 404, "not_found_error", "POST /v1/complete"),
    "the root": ({"path": "/", "method": "GET"}, 404, "not_found_error", "GET /"),
    "below an endpoint": ({"path": "/v1/messages/x/y"}, 404, "not_found_error", "no such endpoint"),
    "a wrong method": ({"method": "GET"}, 405, "invalid_request_error", "use POST"),
    "a wrong method for models": ({"path": "/v1/models"}, 405, "invalid_request_error", "use GET"),
    "an unknown model": ({"body": request(model="gpt")}, 404, "not_found_error", "model: gpt"),
    "an unknown model by id": ({"path": "/v1/models/gpt", "method": "GET"}, 404, "not_found_error", "model: gpt"),
    "no JSON": ({"body": b"hello"}, 400, "invalid_request_error", "not valid JSON"),
    "no body": ({"body": b""}, 400, "invalid_request_error", "not valid JSON"),
    "no UTF-8": ({"body": b'{"model": "\xff"}'}, 400, "invalid_request_error", "not UTF-8"),
    "no object": ({"body": b"[]"}, 400, "invalid_request_error", "must be a JSON object"),
    "too deep": ({"body": b"[" * 100_000}, 400, "invalid_request_error", "not valid JSON"),
    "nothing to answer": ({"body": HOLLOW}, 400, "invalid_request_error", "at least one message"),
    "no content": (
        {"body": request(messages=[{"role": "user", "content": 3}])},
        400,
        "invalid_request_error",
        "valid list",
    ),
    "no max_tokens": ({"body": {"model": "haiku", "messages": [user(text())]}}, 400, "invalid_request_error", "max_"),
    "a turn that is no number": ({"x_coterie_turn": "two"}, 400, "invalid_request_error", "x-coterie-turn: 'two'"),
    "a turn too large": ({"x_coterie_turn": "9" * 5000}, 400, "invalid_request_error", "x-coterie-turn: '999"),
}


@pytest.mark.parametrize(("asked", "status", "kind", "words"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_refusal_is_the_documented_envelope(asked: dict[str, Any], status: int, kind: str, words: str) -> None:
    async with open_served() as served:
        answer = await ask(served, **asked)
        [entry] = served.requests
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert answer.json.keys() == {"type", "error", "request_id"}
    assert answer.json["error"]["type"] == kind
    assert words in answer.error
    assert (entry["status"], entry["error"]) == (status, kind)
    assert entry["request_id"] == answer.headers["request-id"]
    assert entry["usage"] is None


async def test_a_wrong_method_is_told_the_right_one_and_a_large_body_refused() -> None:
    async with open_served(limits=HttpLimits(body=1000)) as served:
        assert (await ask(served, method="PUT")).headers["allow"] == "POST"
        assert (await ask(served, method="DELETE", path="/v1/models")).headers["allow"] == "GET"
        answer = await ask(served, request("x" * 1000))
        assert (answer.status, answer.json["error"]["type"]) == (413, "request_too_large")
        assert answer.error == "Request exceeds the maximum size"
        assert (await ask(served)).status == 200


async def test_invalid_http_is_answered_with_a_request_id() -> None:
    async with open_served() as served, open_peer(served) as peer:
        await peer.stream.send_all(b"POST /v1/messages\r\n\r\n")
        answer = (await peer.stream.receive_some()).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    request_id = next(line.split(": ")[1] for line in head.split("\r\n") if line.startswith("request-id"))
    assert f'"request_id":"{request_id}"' in body


async def test_a_good_answer_has_its_id_and_its_organization() -> None:
    async with open_served() as served:
        answers = [await ask(served), await ask(served, path="/v1/messages/count_tokens")]
        answers += [await ask(served, path="/v1/models", method="GET"), await ask(served, request(stream=True))]
        logged = [entry["request_id"] for entry in served.requests]
    assert [answer.headers["request-id"] for answer in answers] == logged
    assert all(answer.headers["anthropic-organization-id"] for answer in answers)
    assert all(name.startswith("req_") for name in logged)


MODELS = load_models()


async def test_every_model_is_listed_once_newest_first_and_pages_go_both_ways() -> None:
    async with open_served(models=MODELS) as served, open_strict_sdk(served) as client:
        listed = {limit: [model async for model in client.models.list(limit=limit)] for limit in (1, 7, 1000)}
        ids = [model.id for model in listed[1000]]
        pages: list[tuple[dict[str, Any], list[str], bool]] = [
            ({"limit": 3, "after_id": ids[1]}, ids[2:5], True),
            ({"limit": 3, "before_id": ids[5]}, ids[2:5], True),
            ({"limit": 5, "before_id": ids[2]}, ids[:2], False),
            ({"limit": 3, "after_id": ids[-2]}, [ids[-1]], False),
            ({"limit": 3, "after_id": ids[-1]}, [], False),
        ]
        for query, expected, has_more in pages:
            page = await client.models.list(**query)
            assert ([model.id for model in page.data], page.has_more) == (expected, has_more)
            assert (page.first_id, page.last_id) == ((expected[0], expected[-1]) if expected else (None, None))
    assert sorted(ids) == sorted(MODELS.models)
    assert listed[1] == listed[7] == listed[1000]
    dates = [model.created_at for model in listed[1000]]
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "claude-haiku-4-5-20251001"])
async def test_a_model_is_found_by_id_and_by_alias(name: str) -> None:
    async with open_served(models=MODELS) as served, open_strict_sdk(served) as client:
        model = await client.models.retrieve(name)
    known = MODELS.get(name)
    assert (model.id, model.display_name, model.lifecycle) == ("claude-haiku-4-5", known.name, known.lifecycle)
    assert (model.max_input_tokens, model.max_tokens) == (known.window, known.max_output)
    assert model.created_at.date() == known.created


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "limit: Input should be between 1 and 1000"),
        *((f"limit={limit}", "limit:") for limit in ("1001", "many", "-1", "9" * 5000)),
        ("after_id=none", "after_id: 'none' is not in the list"),
        ("before_id=", "before_id: '' is not in the list"),
    ],
)
async def test_invalid_page_parameters_are_refused(query: str, words: str) -> None:
    async with open_served() as served:
        answer = await ask(served, path=f"/v1/models?{query}", method="GET")
    assert answer.status == 400
    assert answer.error.startswith(words)


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


async def test_the_clock_can_be_read_and_moved_and_ages_the_cache() -> None:
    async with open_served() as served:
        before = (await control(served, "clock")).json
        for advance, tokens in ((0, 0), (0, 600), (290, 600), (301, 0), (-0.5, 600)):
            moved = (await control(served, "clock", {"advance": advance})).json
            assert (await ask(served, CACHED)).json["usage"]["cache_read_input_tokens"] == tokens
    assert (before["offset"], moved["offset"]) == (0, 590.5)
    assert 590 <= moved["now"] - before["now"] < 600


ADVANCES = (None, "300", True, [1], 10**400, 1e300, -1e12)
FAULTS = {
    "unknown fault 'overlaoded'; did you mean 'overloaded'?": {"kind": "overlaoded"},
    "a fault must be the name of a kind": {"faults": ["cut", 7]},
    "unknown fault ['cut']": {"faults": ["cut", {"kind": ["cut"]}]},
}
NO_OBJECTS = (b"{", b"[]", b"null", b'"x"', b'{"advance": NaN}', b'{"name": "\xff"}', b"[" * 100_000, b'{"a": 1e999}')


async def test_invalid_body_is_refused_with_the_reason_and_changes_nothing() -> None:
    async with open_served() as served:
        for advance in ({}, *({"advance": value} for value in ADVANCES)):
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
