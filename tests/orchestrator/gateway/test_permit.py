"""Ends of a call and their costs."""

from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.errors import ModelUnreachable
from coterie.agents.loop.model.gateway_protocol import Permit, PermitEnd
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.gateway.permit import CallCost
from tests.orchestrator.gateway.gateway_calls import OPUS, intent, make_gate, open_calls, open_single_caller, used

INTENT = intent(dollars=1, prompt_tokens=3_000)
BEGUN = Usage(read=2_000, output=1)


def fail(_: Permit) -> None:
    raise ModelUnreachable("silent for 120 seconds")


@pytest.mark.parametrize(
    ("act", "end", "usage"),
    [
        (lambda permit: permit.settle(BEGUN), "answered", BEGUN),
        (lambda permit: permit.settle(BEGUN, is_whole=False), "broke_off", Usage(read=2_000, output=INTENT.max_tokens)),
        (lambda permit: permit.void(), "free", Usage()),
        (fail, "unknown", Usage(write_5m=4_000, output=INTENT.max_tokens)),
    ],
)
async def test_closed_permit_is_charged_by_its_end(act: Callable[[Permit], None], end: PermitEnd, usage: Usage) -> None:
    outcomes: list[CallCost] = []
    gate = make_gate(settled=outcomes.append)
    with suppress(ModelUnreachable):
        async with gate.open_client("a") as client, client.admit(INTENT) as permit:
            act(permit)
    (outcome,) = outcomes
    assert (outcome.end, outcome.usage, outcome.is_estimated) == (end, usage, end in ("broke_off", "unknown"))
    session = gate.accounts.session
    assert session.spent == outcome.cost == OPUS.cost(usage)
    assert session.estimated == (outcome.cost if outcome.is_estimated else 0)
    assert session.reserved == 0


async def test_closed_client_releases_slots_and_pays_for_sent_calls() -> None:
    gate = make_gate(dollars=2, places=2)
    async with gate.open_client("b") as other, open_calls() as calls:
        async with gate.open_client("a") as asker:
            await calls.ask(asker, "sent", intent(dollars=1))
            await calls.ask(asker, "told", intent(dollars=1))
            await calls.ask(asker, "waits", intent(dollars=1))
            await calls.ask(other, "other", intent(dollars=0.5))
            calls.permits["told"].settle(used(0.25))
            assert "other" not in calls.started
        await wait_all_tasks_blocked()
        assert isinstance(calls.failed["waits"], trio.ClosedResourceError)
        assert calls.started == ["sent", "told", "other"]
        session = gate.accounts.session
        assert (float(session.spent), float(session.estimated)) == (1.25, 1)
        calls.permits["told"].begin()
        await calls.end("sent", used(0.5))
        assert session.spent == 1.25, "a closed permit is not charged again"
        with pytest.raises(trio.ClosedResourceError):
            async with asker.admit(INTENT):
                pytest.fail("a closed asker was served")


async def test_close_of_one_incarnation_keeps_the_calls_of_another() -> None:
    gate = make_gate()
    async with open_single_caller(gate) as (asker, calls):
        await calls.ask(asker, "call", intent())
        async with gate.open_client("a", incarnation=2):
            pass
        assert gate.activity() == (1, 0)


async def test_permit_granted_during_cancellation_is_returned() -> None:
    """The waiter is cancelled, and admitted before it knows: the place is free again, and nothing is booked."""
    gate = make_gate(dollars=10, places=1)
    async with gate.open_client("a") as asker, trio.open_nursery() as nursery:

        async def wait() -> None:
            async with asker.admit(intent()):
                pytest.fail("cancelled before")

        async with asker.admit(intent()) as permit:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            permit.void()
            nursery.cancel_scope.cancel()
        assert gate.activity() == (1, 0)
    assert gate.activity() == (0, 0)
    assert gate.accounts.session.spent == gate.accounts.session.reserved == 0
