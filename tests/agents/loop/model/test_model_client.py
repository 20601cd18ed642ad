"""The model client against the embedded server: real SDK, real sockets, injected faults."""

import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from coterie.agents.errors import (
    ModelError,
    ModelFailed,
    ModelOverloaded,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelUnreachable,
)
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.client import ModelClient, RetryPolicy, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway, Permit
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.loop.model.usage import Usage
from coterie.errors import ConfigInvalid
from coterie.scenarios.api_server.script.http_faults import HttpFault, HttpFaultKind
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
    script: str = ECHO, *faults: HttpFault, silence: float = 10.0, gate: LocalGateway | None = None
) -> AsyncIterator[tuple[Served, ModelClient, LocalGateway]]:
    gate = gate or LocalGateway()
    with trio.fail_after(10):
        async with (
            open_served(script) as served,
            open_model_client(gate, base_url=served.url, api_key="k", policy=QUICK, silence=silence) as client,
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


async def test_only_loopback_server_gets_caller_headers() -> None:
    async with open_pair("default: [{text: fine, purpose: recall, times: always}]") as (served, client, _):
        seen: list[str] = []
        asked = request(identity=Identity(agent="scout", incarnation=3), purpose="recall", turn=7)
        await client.ask(asked, lambda event: seen.append(event["type"]))
        assert (seen[0], seen[-2:]) == ("message_start", ["message_delta", "message_stop"])
        [entry] = served.requests
        assert [entry[key] for key in ("agent", "incarnation", "purpose", "turn")] == ["scout", 3, "recall", 7]
    assert not any(name.startswith("x-coterie") for name in asked.headers(is_loopback=False))


@pytest.mark.parametrize(
    "fault",
    [
        HttpFault(kind="overloaded", count=2),
        HttpFault(kind="error", count=2),
        HttpFault(kind="rate_limit", count=2, retry_after=3600),
        HttpFault(kind="disconnect", count=2),
        HttpFault(kind="cut", count=2),
        HttpFault(kind="error_event", count=2),
    ],
    ids=lambda fault: fault.kind,
)
async def test_transient_error_is_retried(fault: HttpFault) -> None:
    """The API may ask for a wait of an hour; the policy waits a hundredth of a second. A broken stream is paid for."""
    async with open_pair(ECHO, fault) as (served, client, gate):
        reply = await client.ask(request())
        assert (reply.text, reply.attempts) == ("You said: hello", 3)
        assert gate.used.prompt == (3 if fault.kind in ("cut", "error_event") else 1) * reply.usage.prompt
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


async def test_invalid_request_is_sent_once() -> None:
    async with open_pair() as (served, client, gate):
        with pytest.raises(ModelRefusedRequest) as caught:
            await client.ask(ModelRequest(body=b"{}", model=MODEL, max_tokens=1, prompt_tokens=1))
        assert (caught.value.status, caught.value.kind) == (400, "invalid_request_error")
        assert caught.value.request_id == served.requests[0]["request_id"]
        assert len(served.requests) == 1
        assert gate.used == Usage()


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


async def test_missing_key_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigInvalid, match="coterie serve"):
        async with open_model_client(LocalGateway()):
            pass


def test_waits_double_up_to_longest_then_policy_gives_up() -> None:
    class NoJitter(random.Random):
        def random(self) -> float:
            return 0.0

    policy = RetryPolicy(attempts=7, jitter=NoJitter())
    waits = [policy.wait(ModelOverloaded("busy"), attempt) for attempt in range(1, 8)]
    assert waits == [0.5, 1, 2, 4, 8, 8, None]


@given(st.integers(0), st.integers(1, 4), st.floats(0, 1e6))
def test_jitter_never_shortens_retry_after(seed: int, attempt: int, asked: float) -> None:
    policy = RetryPolicy(jitter=random.Random(seed))
    wait = policy.wait(ModelRateLimited("slow down", retry_after=asked), attempt)
    assert wait is not None
    assert min(asked, 60) <= wait <= 75


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_jitter_only_shortens_own_waits(attempt: int) -> None:
    full = min(0.5 * 2 ** (attempt - 1), 8)
    for seed in range(50):
        wait = RetryPolicy(jitter=random.Random(seed)).wait(ModelOverloaded("busy"), attempt)
        assert wait is not None
        assert 0.75 * full <= wait <= full


INTENT = CallIntent(
    agent="main", purpose="turn", model=load_models().get("opus"), prompt_tokens=1, max_tokens=1, prefix=b""
)


@attrs.define(eq=False)
class NotingGateway(LocalGateway):
    """Gateway that records the order of its calls."""

    asked: list[str] = attrs.field(factory=list)
    intents: list[CallIntent] = attrs.field(factory=list)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        self.intents.append(intent)
        async with LocalGateway.admit(self, intent) as permit:
            self.asked.append("admitted")
            try:
                yield permit
            finally:
                self.asked.append("left")

    def cool_down(self, seconds: float) -> None:
        self.asked.append("closed")
        LocalGateway.cool_down(self, seconds)


@pytest.mark.parametrize(
    ("kind", "asked"), [("overloaded", ["admitted", "closed", "left"]), ("error", ["admitted", "left"])]
)
async def test_cool_down_starts_before_slot_is_released(kind: HttpFaultKind, asked: list[str]) -> None:
    """No other call starts in between. Each attempt is admitted, with all that the gateway decides by."""
    gate = NotingGateway()
    async with open_pair(ECHO, HttpFault(kind=kind), gate=gate) as (_, client, _):
        reply = await client.ask(request(shared=b"shared", ttl="1h"))
    assert reply.attempts == 2
    assert gate.asked == [*asked, "admitted", "left"]
    assert {(intent.agent, intent.shared, intent.ttl) for intent in gate.intents} == {("main", b"shared", "1h")}
