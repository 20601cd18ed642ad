from decimal import Decimal

import pytest

from coterie.agents.errors import BudgetSpent
from tests.orchestrator.gateway.gateway_calls import intent, make_gate, open_calls, open_single_caller, used


async def test_oversized_call_is_refused_with_the_remaining_budget() -> None:
    async with open_single_caller(make_gate(dollars=1.5)) as (asker, calls):
        await calls.ask(asker, "first", intent(dollars=1))
        await calls.end("first", used(1))
        with pytest.raises(BudgetSpent) as refused:
            async with asker.admit(intent(dollars=1)):
                pytest.fail("admitted over the budget")
    error = refused.value
    assert (error.scope, error.name) == ("session", None)
    assert [float(each) for each in (error.budget, error.spent, error.reserve, error.left)] == [1.5, 1, 1, 0.5]


async def test_call_waits_for_budget_reserved_by_another() -> None:
    gate = make_gate(dollars=1.5)
    async with open_single_caller(gate) as (asker, calls):
        await calls.ask(asker, "first", intent(dollars=1))
        await calls.ask(asker, "second", intent(dollars=1))
        assert calls.started == ["first"]
        await calls.end("first", used(0.5))
        assert calls.started == ["first", "second"]
        assert gate.accounts.session.spent == Decimal("0.5")


async def test_waiting_call_is_refused_when_it_can_no_longer_fit() -> None:
    async with open_single_caller(make_gate(dollars=2)) as (asker, calls):
        await calls.ask(asker, "one", intent(dollars=1))
        await calls.ask(asker, "two", intent(dollars=1))
        await calls.ask(asker, "waits", intent(dollars=1.5))
        await calls.end("one", used(1))
        assert isinstance(calls.failed["waits"], BudgetSpent)


async def test_small_calls_do_not_pass_a_large_waiting_call() -> None:
    async with open_single_caller(make_gate(dollars=2)) as (asker, calls):
        await calls.ask(asker, "first", intent(dollars=1))
        await calls.ask(asker, "large", intent(dollars=1.5))
        await calls.ask(asker, "small", intent(dollars=0.5))
        assert calls.started == ["first"]
        await calls.end("first", used(0.25))
        assert calls.started == ["first", "large"]


async def test_subtree_budget_includes_all_descendants() -> None:
    gate = make_gate()
    async with (
        gate.open_client("lead", subtree=Decimal(2)),
        gate.open_client("child", parent="lead") as child,
        gate.open_client("grandchild", parent="child") as grandchild,
        gate.open_client("stranger") as stranger,
        open_calls() as calls,
    ):
        await calls.ask(child, "child", intent(dollars=1))
        await calls.end("child", used(1))
        await calls.ask(grandchild, "grandchild", intent(dollars=1.5))
        await calls.ask(stranger, "stranger", intent(dollars=1.5))
        error = calls.failed["grandchild"]
        assert isinstance(error, BudgetSpent)
        assert (error.scope, error.name) == ("subtree", "lead")
        assert "for lead and its descendants" in str(error)
        assert calls.started == ["child", "stranger"]
        spent = {name: account.spent for name, account in gate.accounts.agents.items()}
        assert spent == {"lead": 1, "child": 1, "grandchild": 0, "stranger": 0}
