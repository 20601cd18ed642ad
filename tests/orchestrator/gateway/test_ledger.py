"""Ledger: entries, damaged lines, totals, and spending of earlier roots."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.errors import BudgetSpent
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.clock import Clock
from coterie.files import TornWrite, file_faults, frame_record
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.budgets import PriorSpending
from coterie.orchestrator.gateway.cache_savings import cost_alternatives
from coterie.orchestrator.gateway.cost_totals import CostTotals, group_costs
from coterie.orchestrator.gateway.ledger import LEDGER, DamagedEntry, Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.ledger_recorder import (
    PENDING_CALLS,
    LedgerRecorder,
    PendingCalls,
    read_pending_calls,
    settle_interrupted_calls,
    sum_spending,
)
from tests.examples import examples
from tests.orchestrator.gateway.gateway_calls import DOLLAR, intent, used
from tests.seeded_faults import SeededFaults

MODEL = known_models().get("claude-opus-5-5")
ONE = Decimal(1)

tokens = st.integers(0, 2_000_000)
usages = st.builds(Usage, input=tokens, read=tokens, write_5m=tokens, write_1h=tokens, output=tokens)
lines = st.builds(
    LedgerEntry,
    at=st.floats(0, 4e9),
    agent=st.text(),
    incarnation=st.integers(1, 9),
    parent=st.none() | st.text(),
    purpose=st.sampled_from(["turn", "summary"]),
    model=st.just(MODEL.id),
    usage=usages,
    cost_usd=st.decimals(0, 10_000, places=9),
    prefix=st.binary(max_size=16).map(bytes.hex),
    expected_read=st.none() | tokens,
    is_estimated=st.booleans(),
)


def line(agent: str = "main", *, parent: str | None = None, **facts: Any) -> LedgerEntry:
    usage = Usage(**{name: facts.pop(name) for name in list(facts) if name in attrs.fields_dict(Usage)})
    basic = {"at": 1.0, "incarnation": 1, "purpose": "turn", "model": MODEL.id, "cost_usd": MODEL.cost(usage)}
    return LedgerEntry(agent=agent, parent=parent, usage=usage, **{**basic, **facts})


@examples(30)
@given(lines)
def test_a_line_is_read_as_it_was_written(written: LedgerEntry) -> None:
    data = written.to_bytes()
    assert (data[:1], data[-1:], data.count(b"\n")) == (b"\n", b"\n", 2)
    assert LedgerEntry.from_bytes(data.strip(b"\n")) == written


def test_dollars_are_written_as_plain_exact_decimals() -> None:
    assert b'"cost_usd":"0.0000002"' in line(cost_usd=Decimal("2E-7")).to_bytes()


@given(st.binary() | st.builds(frame_record, st.binary(min_size=2)))
def test_arbitrary_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reason depends on the damage
        LedgerEntry.from_bytes(data.strip(b"\n"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"v":1', b'"v":2', "version 2, but this program reads version 1"),
        (b'"cost_usd":"0"', b'"cost_usd":"NaN"', "finite and not negative"),
        (b'"input":0', b'"input":-1', "finite and not negative"),
        (b'"agent":"main"', b'"agent":1', "Expected `str`"),
    ],
)
def test_a_line_of_another_version_or_without_sense_is_refused(old: bytes, new: bytes, reason: str) -> None:
    data = line(cost_usd=Decimal(0)).to_bytes().strip(b"\n").replace(old, new)
    start = data[: data.rindex(b',"crc"')]
    with pytest.raises(ValueError, match=reason):
        LedgerEntry.from_bytes(frame_record(start + b"}").strip(b"\n"))


def test_damage_is_reported_and_hides_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(line("one"))
        with file_faults(SeededFaults(1, torn=1.0)), pytest.raises(TornWrite):
            ledger.append(line("torn"))
        ledger.append(line("two"))
        path.write_bytes(path.read_bytes().replace(b'"agent":"two"', b'"agent":"2wo"'))
        ledger.append(line("three"))
    with path.open("ab") as file:
        file.write(line("cut off").to_bytes()[:40])
    found = read_ledger(path)
    assert [each.agent for each in found.lines] == ["one", "three"]
    damage = "the checksum does not match the line, so the line is damaged"
    assert found.damaged == tuple(DamagedEntry(line=number, reason=damage) for number in (4, 5, 9))


def test_agents_are_listed_below_their_parent_with_subtree_costs() -> None:
    found = group_costs(
        [
            line("main", cost_usd=ONE),
            line("scout-1", parent="scout", cost_usd=ONE),
            line("tester", parent="main", cost_usd=ONE),
            line("scout", parent="main", cost_usd=ONE),
            line("main", cost_usd=ONE),
            line("stray", parent="silent", cost_usd=ONE),
            line("a", parent="b", cost_usd=ONE),
            line("b", parent="a", cost_usd=ONE),
        ],
        "agent",
    )
    shown = [(row.depth * " " + row.name, row.parent, int(row.spending.cost), int(row.subtree)) for row in found]
    assert shown == [
        ("main", None, 2, 5),
        (" tester", "main", 1, 1),
        (" scout", "main", 1, 2),
        ("  scout-1", "scout", 1, 1),
        ("a", None, 1, 1),
        ("b", None, 1, 1),
        ("silent", None, 0, 1),
        (" stray", "silent", 1, 1),
    ]


def test_an_unknown_model_stays_as_it_was_billed() -> None:
    other = cost_alternatives([line("a", read=9, write_5m=9, model="gone", cost_usd=Decimal(7))])
    assert set(attrs.astuple(other)) == {Decimal(7)}


@examples(20)
@given(st.lists(lines, max_size=6))
def test_the_bill_lies_between_the_alternatives(some: list[LedgerEntry]) -> None:
    other, cost = cost_alternatives(some), sum((CostTotals.of(each) for each in some), CostTotals()).cost
    assert other.perfect_sharing <= cost <= other.without_sharing


def spent(agent: str, parent: str | None, dollars: int) -> LedgerEntry:
    return line(agent, parent=parent, output=dollars * DOLLAR, cost_usd=Decimal(dollars))


LINES = (spent("main", None, 1), spent("mother", "main", 2), spent("child", "mother", 4), spent("child", "mother", 8))


def test_spending_in_a_cycle_of_parents_is_counted_once() -> None:
    expected = PriorSpending(session=Decimal(3), subtree={"a": Decimal(1), "b": Decimal(2)})
    assert sum_spending((spent("a", "b", 1), spent("b", "a", 2))) == expected


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
        assert "for child and its descendants" in str(caught.value)
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
                assert (noted.agent, noted.incarnation, noted.is_estimated) == ("main", 3, True)
                assert noted.cost_usd == 2
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
