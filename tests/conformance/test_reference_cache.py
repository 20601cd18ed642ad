"""The server bills every request as a straightforward implementation of the documentation does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import attrs
import pytest
import trio
from hypothesis import HealthCheck, given
from trio.testing import wait_all_tasks_blocked

from tests.conformance.cases import Bill, StillClock, send_raw
from tests.conformance.random_histories import STEPS, Begin, Event, History, Send, Step, Wait
from tests.conformance.reference_cache import Begun, ReferenceCache
from tests.embedded_server import Served, open_sdk, open_served
from tests.examples import examples

HELD = 12
"""Largest number of requests that a history may hold back."""
SCRIPT = "\n".join(
    ["default: [{text: ok, times: always}]", *(f"held-{n}: [{{text: ok, until: begin-{n}}}]" for n in range(HELD))]
)


@attrs.define(eq=False)
class ServerOverHttp:
    """The running server and a real client for each key, compared with the reference."""

    served: Served
    sdks: dict[str, anthropic.AsyncAnthropic]
    answers: trio.MemorySendChannel[Bill]
    answered: trio.MemoryReceiveChannel[Bill]
    reference: ReferenceCache = attrs.field(factory=ReferenceCache)
    held: list[Begun] = attrs.field(factory=list)
    begun: int = 0
    """Number of held requests that have been answered."""

    async def act(self, event: Event, nursery: trio.Nursery) -> None:
        """Pass *event* to both; the bills of a request are compared when it is answered.

        Requests that are held wait in *nursery*.
        """
        match event:
            case Wait(seconds=seconds):
                self.served.clock.advance(seconds)
            case Begin():
                await self._begin()
            case Send():
                begun = self.reference.begin(event.body, event.key, self.served.clock.now())
                if event.is_held:
                    await self._hold(event, begun, nursery)
                else:
                    assert await send_raw(self.sdks[event.key], event.body) == begun.bill
                    self.reference.publish(begun)

    async def _hold(self, sent: Send, begun: Begun, nursery: trio.Nursery) -> None:
        number = self.begun + len(self.held)
        self.held.append(begun)
        nursery.start_soon(self._post_held, sent, f"held-{number}")
        while f"begin-{number}" not in self.served.server.control.signals.awaited:
            await wait_all_tasks_blocked()

    async def _begin(self) -> None:
        begun = self.held.pop(0)
        self.served.server.control.signals.raise_signal(f"begin-{self.begun}")
        self.begun += 1
        assert await self.answered.receive() == begun.bill
        self.reference.publish(begun)

    async def _post_held(self, sent: Send, agent: str) -> None:
        await self.answers.send(await send_raw(self.sdks[sent.key], sent.body, agent))


@asynccontextmanager
async def open_server_over_http() -> AsyncIterator[ServerOverHttp]:
    """Start a server that accepts any documented parameter, with an empty cache."""
    async with open_served(SCRIPT, is_strict=False) as served, open_sdk(served, "a") as a, open_sdk(served, "b") as b:
        served.server.clock = StillClock()
        answers, answered = trio.open_memory_channel[Bill](0)
        async with answers, answered:
            yield ServerOverHttp(served, {"a": a, "b": b}, answers, answered)


async def check_history_over_http(steps: list[Step]) -> None:
    async with open_server_over_http() as server, trio.open_nursery() as nursery:
        for event in History().events(steps):
            await server.act(event, nursery)


@pytest.mark.slow
@pytest.mark.timeout(600)
@given(STEPS)
@examples(60, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_is_billed_as_the_reference_does(steps: list[Step]) -> None:
    trio.run(check_history_over_http, steps)
