"""A call that is told to wait closes the gate before it gives back its place, so that nobody slips in between."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest

from coterie.agents.conversation import Conversation, text_block
from coterie.agents.gate import Intent, LocalGate, Permit
from coterie.agents.model.client import open_model_client
from coterie.agents.model.request import ModelRequest
from coterie.scenarios.server.script.faults import Fault, Kind
from tests.agents.conversation_blocks import HEADER
from tests.agents.forks.families import MODEL
from tests.agents.working import QUICK
from tests.servers import open_served


@attrs.define(eq=False)
class NotingGate:
    """The local gate, and a note of what it was asked in which order."""

    gate: LocalGate = attrs.field(factory=LocalGate)
    asked: list[str] = attrs.field(factory=list)
    intents: list[Intent] = attrs.field(factory=list)

    @asynccontextmanager
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """As `LocalGate.admit`."""
        self.intents.append(intent)
        async with self.gate.admit(intent) as permit:
            self.asked.append("admitted")
            try:
                yield permit
            finally:
                self.asked.append("left")

    def cool_down(self, seconds: float) -> None:
        """As `LocalGate.cool_down`."""
        self.asked.append("closed")
        self.gate.cool_down(seconds)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("overloaded", ["admitted", "closed", "left", "admitted", "left"]),
        ("error", ["admitted", "left", "admitted", "left"]),
    ],
)
async def test_the_gate_is_closed_while_the_place_is_held(kind: Kind, asked: list[str]) -> None:
    gate = NotingGate()
    conversation = Conversation.begin(HEADER)
    conversation.append("user", [text_block("Go.")])
    async with (
        open_served() as served,
        open_model_client(gate, base_url=served.url, api_key="k", policy=QUICK) as client,
    ):
        served.server.control.faults.add(Fault(kind=kind))
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
