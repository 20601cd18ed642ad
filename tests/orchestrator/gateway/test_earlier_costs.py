"""Spending of earlier roots, including calls that were pending at a kill."""

from decimal import Decimal
from pathlib import Path

import attrs
import pytest

from coterie.agents.errors import BudgetSpent
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.budgets import PriorSpending
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.ledger_recorder import (
    PENDING_CALLS,
    LedgerRecorder,
    PendingCalls,
    read_pending_calls,
    settle_interrupted_calls,
    sum_spending,
)
from tests.orchestrator.gateway.gateway_calls import DOLLAR, intent, used
from tests.orchestrator.gateway.test_ledger import line


def spent(agent: str, parent: str | None, dollars: int) -> LedgerEntry:
    return line(agent, parent=parent, output=dollars * DOLLAR, cost_usd=Decimal(dollars))


LINES = (spent("main", None, 1), spent("mother", "main", 2), spent("child", "mother", 4), spent("child", "mother", 8))


@pytest.mark.parametrize(
    ("lines", "session", "subtree"),
    [
        (LINES, 15, {"main": 15, "mother": 14, "child": 12}),
        ((spent("a", "b", 1), spent("b", "a", 2)), 3, {"a": 1, "b": 2}),
    ],
    ids=["descendants", "cycle of parents"],
)
def test_spending_is_summed_for_agent_and_ancestors(
    lines: tuple[LedgerEntry, ...], session: int, subtree: dict[str, int]
) -> None:
    in_subtrees = {name: Decimal(dollars) for name, dollars in subtree.items()}
    assert sum_spending(lines) == PriorSpending(session=Decimal(session), subtree=in_subtrees)


async def test_budgets_include_spending_of_earlier_roots() -> None:
    gate = ModelGateway(Clock(), Decimal(20), earlier=sum_spending(LINES))
    async with (
        gate.open_client("main"),
        gate.open_client("mother", parent="main", subtree=Decimal(15)),
        gate.open_client("child", parent="mother", subtree=Decimal(13)) as child,
        gate.open_client("fresh", parent="main") as fresh,
    ):
        with pytest.raises(BudgetSpent) as caught:
            async with child.admit(intent(dollars=2)):
                pass
        assert (caught.value.scope, caught.value.spent) == ("subtree", Decimal(12))
        async with child.admit(intent(dollars=1)) as permit:
            permit.settle(used(1))
        with pytest.raises(BudgetSpent) as caught:
            async with fresh.admit(intent(dollars=5)):
                pass
        assert (caught.value.scope, caught.value.spent) == ("session", Decimal(16))


async def test_pending_call_is_logged_before_it_starts_and_ended_after_the_entry(tmp_path: Path) -> None:
    path = tmp_path / PENDING_CALLS
    with Ledger.open(tmp_path / LEDGER) as ledger, PendingCalls.open(path) as calls:
        books = LedgerRecorder(ledger, Clock(), lambda _: None, calls)
        gate = ModelGateway(Clock(), started=books.begin, settled=books.record)
        async with gate.open_client("main", incarnation=3) as asker:
            async with asker.admit(intent(dollars=2)) as permit:
                [noted] = read_pending_calls(path)
                assert (noted.agent, noted.incarnation, noted.cost_usd, noted.is_estimated) == (
                    "main",
                    3,
                    Decimal(2),
                    True,
                )
                permit.settle(used(1))
            async with asker.admit(intent(dollars=2)) as permit:
                permit.void()
        assert read_pending_calls(path) == ()
    assert not path.exists()
    assert [booked.cost_usd for booked in read_ledger(tmp_path / LEDGER).lines] == [1]


def test_calls_pending_at_a_root_kill_are_recorded_once_at_their_maximum_cost(tmp_path: Path) -> None:
    assert settle_interrupted_calls(tmp_path) == PriorSpending()
    most = attrs.evolve(LINES[0], is_estimated=True)
    calls = PendingCalls.open(tmp_path / PENDING_CALLS)
    calls.begin(1, most)
    calls.begin(2, LINES[1])
    calls.end(2)
    with (tmp_path / PENDING_CALLS).open("ab") as log:
        log.write(b'\n{"call":3,"most":{"at"')  # torn: it was never made
    left = (tmp_path / PENDING_CALLS).read_bytes()
    assert settle_interrupted_calls(tmp_path).session == 1
    assert read_ledger(tmp_path / LEDGER).lines == (most,)
    assert not (tmp_path / PENDING_CALLS).exists()
    (tmp_path / PENDING_CALLS).write_bytes(left)  # as if killed again before it could be removed
    assert settle_interrupted_calls(tmp_path).session == 1
