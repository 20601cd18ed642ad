"""Random fan-outs against a simple model: no budget is exceeded, no waiter is lost, everything is released."""

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from functools import partial

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from coterie.agents.errors import BudgetSpent, ModelOverloaded, ModelUnreachable
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import Permit
from coterie.agents.loop.model.usage import Usage
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import GatewayClient, ModelGateway
from coterie.orchestrator.gateway.permit import CallCost
from tests.examples import examples
from tests.orchestrator.gateway.gateway_calls import OPUS

PARENTS = {"lead": None, "a": "lead", "b": "lead", "aa": "a"}
"""Parent of each agent, parents first."""
PLACES = 3
LONG = 60.0
"""Seconds that outlast every cool-down and every hold of these tests."""

End = Callable[[Permit], None]
"""The last thing a call does with its permit."""

intents = st.builds(
    CallIntent,
    agent=st.just("anybody"),
    purpose=st.sampled_from(["turn", "notes", "summary"]),
    model=st.just(OPUS),
    prompt_tokens=st.sampled_from([0, 600, 9_000, 90_000]),
    max_tokens=st.sampled_from([1, 8_000, 64_000]),
    prefix=st.sampled_from([b"", b"x", b"y"]),
    shared=st.sampled_from([None, b"s"]),
    ttl=st.sampled_from(["5m", "1h"]),
)
budgets = st.none() | st.integers(0, 60).map(lambda tenths: Decimal(tenths) / 10)


@attrs.define(eq=False)
class Call:
    """A call in a task of its own; the test decides how it ends."""

    agent: str
    intent: CallIntent
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    permit: Permit | None = None
    is_over: bool = False
    _end: End | None = None
    _told: trio.Event = attrs.field(factory=trio.Event)

    def give_outcome(self, end: End) -> None:
        self._end = end
        self._told.set()

    async def run(self, asker: GatewayClient) -> None:
        """Make the call and end it as the test says; each possible error ends it."""
        try:
            with self.scope:
                async with asker.admit(self.intent) as self.permit:
                    await self._told.wait()
                    assert self._end is not None
                    self._end(self.permit)
        except (BudgetSpent, ModelOverloaded, ModelUnreachable, trio.ClosedResourceError):
            pass  # each is one of the ends that are meant to happen
        finally:
            self.is_over = True


def answer(share: float, intent: CallIntent, permit: Permit) -> None:
    """A complete reply that used *share* of its maximum."""
    permit.settle(Usage(write_5m=int(intent.most.prompt * share), output=int(intent.max_tokens * share)))


def break_off(permit: Permit) -> None:
    permit.settle(Usage(read=1, output=1), is_whole=False)
    raise ModelUnreachable("closed too early", begun=True)


def fall_silent(_: Permit) -> None:
    raise ModelUnreachable("silent")


def be_refused(permit: Permit) -> None:
    permit.void()
    raise ModelOverloaded("busy", status=529)


@attrs.define(eq=False)
class Fanout:
    """State machine of a gateway, its agents and the expected state of their calls."""

    nursery: trio.Nursery
    budgets: dict[str, Decimal | None]
    gate: ModelGateway
    settled: list[CallCost]
    calls: list[Call] = attrs.field(factory=list)
    askers: dict[str, GatewayClient] = attrs.field(factory=dict)
    _stacks: dict[str, AsyncExitStack] = attrs.field(factory=dict)

    async def open(self, name: str) -> None:
        self._stacks[name] = AsyncExitStack()
        opened = self.gate.open_client(name, parent=PARENTS[name], subtree=self.budgets[name])
        self.askers[name] = await self._stacks[name].enter_async_context(opened)

    async def die(self, name: str) -> None:
        """Close the client of a dead agent before its calls report how they ended."""
        await self._stacks[name].aclose()
        for call in self.calls:
            if call.agent == name:
                call.scope.cancel()

    def ask(self, name: str, intent: CallIntent) -> None:
        self.calls.append(call := Call(name, intent))
        self.nursery.start_soon(call.run, self.askers[name])

    @property
    def running(self) -> list[Call]:
        """Admitted and not over."""
        return [call for call in self.calls if call.permit is not None and not call.is_over]

    @property
    def waiting(self) -> list[Call]:
        """Neither admitted nor turned away."""
        return [call for call in self.calls if call.permit is None and not call.is_over]

    def check(self) -> None:
        """Check the invariants that hold at every moment."""
        assert self.gate.activity() == (len(self.running), len(self.waiting))
        assert len(self.running) <= PLACES
        accounts = self.gate.accounts
        for account in (accounts.session, *accounts.agents.values()):
            assert account.limit is None or account.spent + account.reserved <= account.limit
        spent = dict.fromkeys(PARENTS, Decimal(0))
        for outcome in self.settled:
            spent[outcome.caller.agent] += outcome.cost
        for above, account in accounts.agents.items():
            assert account.spent == sum(spent[name] for name in PARENTS if is_below(name, above))
        assert accounts.session.spent == sum(spent.values())

    def check_rested(self) -> None:
        """Check that after pauses and warm-up waits only slots and budgets make calls wait."""
        if len(self.running) == PLACES:
            return
        for call in self.waiting:
            accounts = self.gate.accounts.accounts_of(call.agent)
            is_tight = any(account.limit is not None and account.reserved for account in accounts)
            assert is_tight, f"{call.agent} waits without a reason"


def is_below(name: str | None, above: str) -> bool:
    while name is not None and name != above:
        name = PARENTS[name]
    return name == above


async def take_step(fanout: Fanout, draw: st.DataObject, clock: Clock) -> None:
    kind = draw.draw(st.sampled_from(["ask", "ask", "ask", "end", "begin", "cancel", "cool", "pass", "rest", "die"]))
    name = draw.draw(st.sampled_from(sorted(PARENTS)))
    match kind:
        case "ask":
            fanout.ask(name, draw.draw(intents))
        case "end" if fanout.running:
            call = draw.draw(st.sampled_from(fanout.running))
            ends: list[End] = [partial(answer, share, call.intent) for share in (0.0, 0.5, 1.0)]
            call.give_outcome(draw.draw(st.sampled_from([*ends, break_off, fall_silent, be_refused])))
        case "begin" if fanout.running:
            permit = draw.draw(st.sampled_from(fanout.running)).permit
            assert permit is not None
            permit.begin()
        case "cancel" if fanout.waiting:
            draw.draw(st.sampled_from(fanout.waiting)).scope.cancel()
        case "cool":
            fanout.gate.cool_down(draw.draw(st.sampled_from([0.1, 5.0])))
        case "pass":
            clock.advance(draw.draw(st.sampled_from([1.0, 400.0])))
            await trio.sleep(0.1)
        case "rest":
            await trio.sleep(LONG)
            fanout.check_rested()
        case "die":
            await fanout.die(name)
            await fanout.open(name)


async def finish(fanout: Fanout) -> None:
    """End all running calls; then every waiting call must get a verdict, and nothing stays reserved."""
    while fanout.running or fanout.waiting:
        await trio.sleep(LONG)
        fanout.check()
        fanout.check_rested()
        for call in fanout.running:
            call.give_outcome(partial(answer, 0.5, call.intent))
        await wait_all_tasks_blocked()
    accounts = fanout.gate.accounts
    assert not any(account.reserved for account in (accounts.session, *accounts.agents.values()))


async def run_fanout(draw: st.DataObject) -> None:
    settled: list[CallCost] = []
    clock = Clock()
    limits = draw.draw(st.sampled_from([budgets, st.none()]))
    gate = ModelGateway(
        clock, budget=draw.draw(limits), max_calls=PLACES, jitter=random.Random(1), settled=settled.append
    )
    async with trio.open_nursery() as nursery:
        fanout = Fanout(nursery, {name: draw.draw(limits) for name in PARENTS}, gate, settled)
        for name in PARENTS:
            await fanout.open(name)
        for _ in range(draw.draw(st.integers(1, 40))):
            await take_step(fanout, draw, clock)
            await wait_all_tasks_blocked()
            fanout.check()
        await finish(fanout)
        for name in PARENTS:
            await fanout.die(name)


@pytest.mark.slow
@examples(60)
@given(draw=st.data())
def test_random_fan_out_keeps_budgets_and_ends_all_waits(draw: st.DataObject) -> None:
    trio.run(run_fanout, draw, clock=MockClock(autojump_threshold=0))
