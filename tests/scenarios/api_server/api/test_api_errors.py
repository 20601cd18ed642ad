"""Errors over HTTP: authentication, the envelope, its status, and a request id on every answer."""

from typing import Any

import pytest

from coterie.scenarios.api_server.http.http_connection import HttpLimits
from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, open_peer, request
from tests.scenarios.api_server.request_samples import text, user

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
