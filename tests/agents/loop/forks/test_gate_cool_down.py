"""A rejected call starts the cool-down before it releases its slot, so that no other call starts in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway, Permit
from coterie.agents.loop.model.request import ModelRequest
from coterie.scenarios.api_server.script.http_faults import HttpFault, HttpFaultKind
from tests.agents.conversation_blocks import HEADER
from tests.agents.loop.forks.fork_family import MODEL
from tests.agents.scripted_agent import QUICK
from tests.embedded_server import open_served


@attrs.define(eq=False)
class NotingGate:
    """`LocalGateway` that records the order of its calls."""

    gate: LocalGateway = attrs.field(factory=LocalGateway)
    asked: list[str] = attrs.field(factory=list)
    intents: list[CallIntent] = attrs.field(factory=list)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `LocalGateway.admit`."""
        self.intents.append(intent)
        async with self.gate.admit(intent) as permit:
            self.asked.append("admitted")
            try:
                yield permit
            finally:
                self.asked.append("left")

    def cool_down(self, seconds: float) -> None:
        """As `LocalGateway.cool_down`."""
        self.asked.append("closed")
        self.gate.cool_down(seconds)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("overloaded", ["admitted", "closed", "left", "admitted", "left"]),
        ("error", ["admitted", "left", "admitted", "left"]),
    ],
)
async def test_cool_down_starts_before_slot_is_released(kind: HttpFaultKind, asked: list[str]) -> None:
    gate = NotingGate()
    conversation = Conversation.begin(HEADER)
    conversation.append("user", [text_block("Go.")])
    async with (
        open_served() as served,
        open_model_client(gate, base_url=served.url, api_key="k", policy=QUICK) as client,
    ):
        served.server.control.faults.add(HttpFault(kind=kind))
        request = ModelRequest(
            body=conversation.render(max_tokens=9).chunks,
            model=MODEL,
            max_tokens=9,
            prompt_tokens=9,
            shared=b"shared",
            ttl="1h",
        )
        reply = await client.ask(request)
    assert reply.attempts == 2
    assert gate.asked == asked
    assert {(intent.shared, intent.ttl) for intent in gate.intents} == {(b"shared", "1h")}
