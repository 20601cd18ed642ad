"""The model client against the embedded server: real SDK, real sockets, injected faults."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.errors import (
    ModelError,
    ModelFailed,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelUnreachable,
)
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.client import ModelClient, RetryPolicy, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid
from coterie.scenarios.api_server.script.http_faults import HttpFault
from tests.embedded_server import ECHO, Served, open_served

MODEL = load_models().get("claude-opus-5-5")
PROMPT = "x" * 4_000
SETTLED = 0.02
"""Seconds without activity after which the server has noticed that its client has disconnected."""
QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002, retry_after_cap=0.01)


def request(text: str = PROMPT, **changes: Any) -> ModelRequest:
    body = {
        "model": MODEL.id,
        "max_tokens": 100,
        "stream": True,
        "system": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }
    fields = {"model": MODEL, "max_tokens": 100, "prompt_tokens": 1_000, **changes}
    return ModelRequest(body=json.dumps(body).encode(), **fields)


@asynccontextmanager
async def open_pair(
    script: str = ECHO, *faults: HttpFault, silence: float = 10.0, policy: RetryPolicy = QUICK
) -> AsyncIterator[tuple[Served, ModelClient, LocalGateway]]:
    gate = LocalGateway()
    with trio.fail_after(10):
        async with (
            open_served(script) as served,
            open_model_client(gate, base_url=served.url, api_key="k", policy=policy, silence=silence) as client,
        ):
            for fault in faults:
                served.server.control.faults.add(fault)
            yield served, client, gate


async def test_reply_is_complete_and_settled() -> None:
    async with open_pair() as (served, client, gate):
        reply = await client.ask(request())
        assert reply.text == "You said: hello"
        assert (reply.stop_reason, reply.attempts, reply.model) == ("end_turn", 1, MODEL.id)
        assert reply.usage == Usage(write_5m=1000, input=2, output=4)
        assert 0 < reply.first_byte <= reply.duration
        assert gate.used == reply.usage
        assert str(gate.spent) == str(MODEL.cost(reply.usage))
        [entry] = served.requests
        assert entry["request_id"] == reply.request_id
        assert entry["message_id"] == reply.message_id


async def test_loopback_server_gets_caller_headers() -> None:
    async with open_pair("default: [{text: fine, purpose: recall, times: always}]") as (served, client, _):
        await client.ask(request(identity=Identity(agent="scout", incarnation=3), purpose="recall", turn=7))
        [entry] = served.requests
        assert [entry[key] for key in ("agent", "incarnation", "purpose", "turn")] == ["scout", 3, "recall", 7]


def test_only_loopback_server_gets_caller_headers() -> None:
    names = {name for name in request().headers(is_loopback=False) if name.startswith("x-coterie")}
    assert not names
    assert "x-coterie-agent" in request().headers(is_loopback=True)


async def test_listener_gets_every_event_in_order() -> None:
    seen: list[str] = []
    async with open_pair() as (_, client, _):
        await client.ask(request(), lambda event: seen.append(event["type"]))
    assert seen[0] == "message_start"
    assert seen[-2:] == ["message_delta", "message_stop"]


async def test_server_accepts_reply_blocks_in_next_request() -> None:
    """The signed thinking and the streamed input go back in the next request, in strict mode."""
    script = 'default: [{thinking: "hm", text: "I look.", tools: [{Read: {path: "a b"}}]}, {text: done}]'
    async with open_pair(script) as (_, client, _):
        first = await client.ask(request(turn=1, identity=Identity(agent="a")))
        assert [block.type for block in first.blocks] == ["thinking", "text", "tool_use"]
        body = json.loads(request().body[0])
        result = {"type": "tool_result", "tool_use_id": first.tool_calls[0]["id"], "content": "found"}
        body["messages"] += [
            {"role": "assistant", "content": [json.loads(block.data) for block in first.blocks]},
            {"role": "user", "content": [result]},
        ]
        again = ModelRequest(
            body=json.dumps(body).encode(),
            model=MODEL,
            max_tokens=1,
            prompt_tokens=1,
            turn=2,
            identity=Identity(agent="a"),
        )
        assert (await client.ask(again)).text == "done"


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(kind="overloaded", count=2),
        HttpFault(kind="error", count=2),
        HttpFault(kind="rate_limit", count=2, retry_after=0.01),
        HttpFault(kind="disconnect", count=2),
        HttpFault(kind="cut", count=2),
        HttpFault(kind="error_event", count=2),
    ],
    ids=lambda fault: fault.kind,
)
async def test_transient_error_is_retried(fault: HttpFault) -> None:
    async with open_pair(ECHO, fault) as (served, client, _):
        reply = await client.ask(request())
        assert (reply.text, reply.attempts) == ("You said: hello", 3)
        assert [entry["fault"] for entry in served.requests] == [fault.kind, fault.kind, None]


@pytest.mark.parametrize(
    ("fault", "error", "status", "kind", "begun"),
    [
        (HttpFault(kind="overloaded", count=None), ModelOverloaded, 529, "overloaded_error", False),
        (HttpFault(kind="error", count=None), ModelFailed, 500, "api_error", False),
        (HttpFault(kind="rate_limit", count=None), ModelRateLimited, 429, "rate_limit_error", False),
        (HttpFault(kind="disconnect", count=None), ModelUnreachable, None, None, False),
        (HttpFault(kind="cut", count=None), ModelUnreachable, None, None, True),
        (HttpFault(kind="error_event", count=None), ModelOverloaded, 200, "overloaded_error", True),
        (HttpFault(kind="error_event", count=None, error="api_error"), ModelFailed, 200, "api_error", True),
        (HttpFault(kind="stall", count=None), ModelUnreachable, None, None, True),
    ],
    ids=lambda value: value.kind if isinstance(value, HttpFault) else None,
)
async def test_permanent_error_is_translated_with_its_fields(
    fault: HttpFault, error: type[ModelError], status: int | None, kind: str | None, *, begun: bool
) -> None:
    async with open_pair(ECHO, fault, silence=0.2) as (served, client, _):
        with pytest.raises(error) as caught:
            await client.ask(request())
        found = caught.value
        assert (found.status, found.kind, found.begun, found.retryable) == (status, kind, begun, True)
        await wait_all_tasks_blocked(SETTLED)
        assert len(served.requests) == QUICK.attempts


async def test_interrupted_stream_is_settled_with_reported_usage() -> None:
    async with open_pair(ECHO, HttpFault(kind="cut", count=1)) as (_, client, gate):
        reply = await client.ask(request())
        assert gate.used.prompt == 2 * reply.usage.prompt


async def test_invalid_request_is_sent_once() -> None:
    async with open_pair() as (served, client, gate):
        with pytest.raises(ModelRefusedRequest) as caught:
            await client.ask(ModelRequest(body=b"{}", model=MODEL, max_tokens=1, prompt_tokens=1))
        assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
        assert caught.value.request_id == served.requests[0]["request_id"]
        assert len(served.requests) == 1
        assert gate.used == Usage()


async def test_long_retry_after_is_capped() -> None:
    """The API asks for an hour; the policy waits a hundredth of a second and retries."""
    async with open_pair(ECHO, HttpFault(kind="rate_limit", retry_after=3600)) as (_, client, _):
        assert (await client.ask(request())).attempts == 2


async def test_every_retry_is_admitted_by_gateway() -> None:
    admitted = 0

    class CountingGate(LocalGateway):
        def admit(self, intent: Any) -> Any:
            nonlocal admitted
            admitted += 1
            assert intent.agent == "main"
            return super().admit(intent)

    async with open_served() as served:
        served.server.control.faults.add(HttpFault(kind="overloaded", count=2))
        async with open_model_client(CountingGate(), base_url=served.url, api_key="k", policy=QUICK) as client:
            await client.ask(request())
    assert admitted == 3


async def test_cancellation_closes_connection_immediately() -> None:
    begun = trio.Event()

    def listen(event: dict[str, Any]) -> None:
        if event["type"] == "content_block_start":
            begun.set()

    async with open_pair(ECHO, HttpFault(kind="stall")) as (served, client, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.ask, request(), listen)
            await begun.wait()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked(SETTLED)
        assert served.requests[0]["error"] == "client_gone"
        assert (await client.ask(request())).text == "You said: hello"


async def test_closed_port_raises_model_unreachable() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with open_model_client(LocalGateway(), base_url=url, api_key="k", policy=QUICK) as client:
            with pytest.raises(ModelUnreachable):
                await client.ask(request())


async def test_missing_key_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigInvalid, match="coterie serve"):
        async with open_model_client(LocalGateway()):
            pass
