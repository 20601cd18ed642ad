"""Calls at the gateway of a session, made by tests."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import attrs
import trio

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.gateway_protocol import Gateway, Permit
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import GatewayClient, ModelGateway

OPUS = load_models().get("opus")
DOLLAR = 50_000
"""Output tokens that cost a dollar with Opus: a call of so many and no input reserves just that."""


def intent(
    *, dollars: float = 1.0, purpose: str = "turn", prompt_tokens: int = 0, prefix: bytes = b"", **facts: Any
) -> CallIntent:
    """A call that may cost *dollars* at most if it has no input; one with input is 10,000 tokens long or so."""
    call: dict[str, Any] = {"agent": "a", "model": OPUS, "purpose": purpose, "prefix": prefix, **facts}
    return CallIntent(prompt_tokens=prompt_tokens, max_tokens=int(dollars * DOLLAR), **call)


def warming(prefix: bytes, shared: bytes | None = None, *, ttl: Ttl = "5m") -> CallIntent:
    return intent(dollars=0, prompt_tokens=10_000, prefix=prefix, shared=shared, ttl=ttl)


def used(dollars: float) -> Usage:
    return Usage(output=int(dollars * DOLLAR))


def make_gate(*, dollars: float | None = None, places: int = 20, clock: Clock | None = None) -> ModelGateway:
    """A gate whose jitter repeats itself."""
    budget = None if dollars is None else Decimal(str(dollars))
    return ModelGateway(clock or Clock(), budget=budget, max_calls=places, jitter=random.Random(5))


@attrs.define(eq=False)
class Calls:
    """Calls in tasks of their own, which the test ends one by one."""

    nursery: trio.Nursery
    started: list[str] = attrs.field(factory=list)
    """In the order of admission."""
    times: dict[str, float] = attrs.field(factory=dict)
    failed: dict[str, Exception] = attrs.field(factory=dict)
    permits: dict[str, Permit] = attrs.field(factory=dict)
    _leave: dict[str, trio.Event] = attrs.field(factory=dict)

    async def ask(self, gate: Gateway, name: str, asked: CallIntent) -> None:
        """Start the call *name*, and wait until all tasks are blocked."""
        self.nursery.start_soon(self._run, gate, name, asked)
        await trio.testing.wait_all_tasks_blocked()

    async def end(self, name: str, usage: Usage | None = None) -> None:
        """End the call *name*, settled if there is *usage*, and wait until all tasks are blocked."""
        if usage is not None:
            self.permits[name].settle(usage)
        self._leave[name].set()
        await trio.testing.wait_all_tasks_blocked()

    async def _run(self, gate: Gateway, name: str, asked: CallIntent) -> None:
        self._leave[name] = trio.Event()
        try:
            async with gate.admit(asked) as permit:
                self.started.append(name)
                self.times[name] = trio.current_time()
                self.permits[name] = permit
                await self._leave[name].wait()
        except Exception as exc:  # noqa: BLE001 - the test looks at it
            self.failed[name] = exc


@asynccontextmanager
async def open_calls() -> AsyncIterator[Calls]:
    async with trio.open_nursery() as nursery:
        yield Calls(nursery)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_single_caller(gate: ModelGateway) -> AsyncIterator[tuple[GatewayClient, Calls]]:
    async with gate.open_client("a") as asker, open_calls() as calls:
        yield asker, calls
