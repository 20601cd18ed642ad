"""The session's gate before the real client and the embedded server."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from coterie.agents.errors import ModelUnreachable
from coterie.agents.loop.model.client import ModelClient, RetryPolicy, open_model_client
from coterie.agents.loop.model.request import ModelRequest
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.permit import CallCost
from coterie.scenarios.api_server.script.http_faults import HttpFault
from tests.embedded_server import Served, open_served
from tests.orchestrator.gateway.gateway_calls import OPUS

QUICK = RetryPolicy(attempts=3, first_wait=0.001, longest_wait=0.002)
SIBLINGS = 6


def request(prefix: bytes = b"prefix") -> ModelRequest:
    system = {"type": "text", "text": "x" * 8_000, "cache_control": {"type": "ephemeral"}}
    body = {
        "model": OPUS.id,
        "max_tokens": 100,
        "stream": True,
        "system": [system],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    }
    return ModelRequest(body=json.dumps(body).encode(), model=OPUS, max_tokens=100, prompt_tokens=2_000, prefix=prefix)


@attrs.frozen(kw_only=True)
class Team:
    """Clients of several agents before one gate."""

    served: Served
    gate: ModelGateway
    clients: tuple[ModelClient, ...]
    settled: list[CallCost]


@asynccontextmanager
async def open_team(script: str, *faults: HttpFault) -> AsyncIterator[Team]:
    settled: list[CallCost] = []
    with trio.fail_after(10):
        async with open_served(script) as served, trio.open_nursery() as nursery:
            for fault in faults:
                served.server.control.faults.add(fault)
            gate = ModelGateway(served.clock, jitter=random.Random(1), settled=settled.append)
            clients = [await nursery.start(_own_client, gate, f"agent-{n}", served.url) for n in range(SIBLINGS)]
            yield Team(served=served, gate=gate, clients=tuple(clients), settled=settled)
            nursery.cancel_scope.cancel()


async def _own_client(
    gate: ModelGateway, name: str, url: str, task_status: trio.TaskStatus[ModelClient] = trio.TASK_STATUS_IGNORED
) -> None:
    async with (
        gate.open_client(name) as asker,
        open_model_client(asker, base_url=url, api_key="k", policy=QUICK) as client,
    ):
        task_status.started(client)
        await trio.sleep_forever()


@pytest.mark.slow
async def test_concurrent_agents_write_their_common_prefix_once() -> None:
    async with open_team("default: [{text: fine, delay: 0.05, times: always}]") as team:
        async with trio.open_nursery() as nursery:
            for client in team.clients:
                nursery.start_soon(client.ask, request())
        usages = [outcome.usage for outcome in team.settled]
        assert sorted(usage.write_5m for usage in usages) == [0] * (SIBLINGS - 1) + [2_000]
        spent = team.gate.accounts.session.spent
        assert spent == sum(OPUS.cost(usage) for usage in usages)


@pytest.mark.slow
async def test_rate_limited_call_pauses_all_calls_and_is_free() -> None:
    async with open_team("default: [{text: fine, times: always}]", HttpFault(kind="overloaded", count=1)) as team:
        reply = await team.clients[0].ask(request())
        assert reply.attempts == 2
        assert [(outcome.end, outcome.is_estimated) for outcome in team.settled] == [
            ("free", False),
            ("answered", False),
        ]


@pytest.mark.slow
async def test_interrupted_stream_is_charged_as_an_upper_bound() -> None:
    async with open_team("default: [{text: fine, times: always}]", HttpFault(kind="cut", count=None)) as team:
        with pytest.raises(ModelUnreachable):
            await team.clients[0].ask(request())
        assert [outcome.end for outcome in team.settled] == ["broke_off"] * 3
        first, *again = (outcome.usage for outcome in team.settled)
        assert first == Usage(write_5m=2_000, input=2, output=100)
        assert again == [Usage(read=2_000, input=2, output=100)] * 2
        session = team.gate.accounts.session
        assert session.estimated == session.spent
