"""Ledger: entries, damaged lines and totals."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.files import TornWrite, file_faults, frame_record
from coterie.orchestrator.gateway.cache_savings import cost_alternatives
from coterie.orchestrator.gateway.cost_totals import CostTotals, group_costs, per_100_turns, sum_costs
from coterie.orchestrator.gateway.ledger import DamagedEntry, Ledger, LedgerEntry, read_ledger
from tests.examples import examples
from tests.seeded_faults import SeededFaults

MODEL = known_models().get("claude-opus-5-5")
PRICE = MODEL.prices[0]
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
    """A line of the model's own price."""
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
        (b'"v":1', b'"v":2', "version 2; this program reads 1"),
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
    assert found.damaged == tuple(DamagedEntry(line=number, reason="the checksum is wrong") for number in (4, 5, 9))


WRITER = """
import sys
from pathlib import Path
from coterie.orchestrator.gateway.ledger import Ledger, LedgerEntry as LedgerLine
from tests.orchestrator.gateway.test_ledger import line
with Ledger.open(Path(sys.argv[1])) as ledger:
    for number in range(200):
        ledger.append(line(sys.argv[2], incarnation=number + 1))
"""


@pytest.mark.slow
def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], cwd=Path(__file__).parents[3]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = read_ledger(path)
    assert not found.damaged
    for name in "abc":
        assert [each.incarnation for each in found.lines if each.agent == name] == list(range(1, 201))


def test_agents_are_listed_below_their_parent_with_subtree_costs() -> None:
    found = group_costs(
        [
            line("main", cost_usd=ONE),
            line("scout-1", parent="scout", cost_usd=ONE),
            line("tester", parent="main", cost_usd=ONE),
            line("scout", parent="main", cost_usd=ONE),
            line("main", cost_usd=ONE),
            line("stray", parent="silent", cost_usd=ONE),
        ],
        "agent",
    )
    shown = [(row.depth * " " + row.name, row.parent, int(row.spending.cost), int(row.subtree)) for row in found]
    assert shown == [
        ("main", None, 2, 5),
        (" tester", "main", 1, 1),
        (" scout", "main", 1, 2),
        ("  scout-1", "scout", 1, 1),
        ("silent", None, 0, 1),
        (" stray", "silent", 1, 1),
    ]


def test_agents_in_a_parent_cycle_are_listed() -> None:
    found = group_costs([line("a", parent="b"), line("b", parent="a"), line("c", parent="c")], "agent")
    assert sorted((row.name, row.parent, row.depth) for row in found) == [
        ("a", None, 0),
        ("b", None, 0),
        ("c", None, 0),
    ]


def test_other_groups_are_sorted_by_descending_cost() -> None:
    given_lines = [line(cost_usd=Decimal(1)), line(purpose="notes", cost_usd=Decimal(3)), line(cost_usd=Decimal(1))]
    assert [(row.name, row.spending.requests) for row in group_costs(given_lines, "purpose")] == [
        ("notes", 1),
        ("turn", 2),
    ]


def test_interrupted_requests_are_counted_separately() -> None:
    spent = sum_costs(
        [line(cost_usd=Decimal(1)), line(cost_usd=Decimal(2), is_estimated=True, read=5, expected_read=9)]
    )
    assert (spent.requests, spent.estimated, spent.missed) == (2, 1, 4)
    assert (spent.cost, spent.estimated_cost) == (Decimal(3), Decimal(2))


def test_helper_calls_are_counted_per_100_turns() -> None:
    some = [*[line()] * 8, line(purpose="summary"), line(is_estimated=True), line(purpose="notes", is_estimated=True)]
    assert per_100_turns(some) == {"summary": 12.5}
    assert per_100_turns([line(purpose="summary")]) == {}


def test_without_sharing_an_agent_writes_what_another_had_written() -> None:
    """The fork reads 1,000 tokens of its parent's, and on its second turn what it has read or written itself."""
    shared = [
        line("main", write_5m=1_000, output=10),
        line("fork", parent="main", read=1_000, write_5m=100),
        line("fork", parent="main", read=1_100, input=7),
        line("main", read=1_000, write_5m=50),
    ]
    more = cost_alternatives(shared).without_sharing - sum_costs(shared).cost
    assert more == 1_000 * (PRICE.write_5m - PRICE.read) / 1_000_000


def test_with_perfect_sharing_a_prefix_is_written_once() -> None:
    """Two siblings raced for one prefix, and a third missed what its parent had cached for an hour and five minutes."""
    raced = [
        line("a", prefix="aa", write_5m=1_000),
        line("b", prefix="aa", write_5m=1_000),
        line("c", prefix="cc", expected_read=600, write_1h=500, write_5m=300),
    ]
    saved = sum_costs(raced).cost - cost_alternatives(raced).perfect_sharing
    read_5m, read_1h = PRICE.write_5m - PRICE.read, PRICE.write_1h - PRICE.read
    assert saved == (1_100 * read_5m + 500 * read_1h) / 1_000_000


def test_without_a_cache_all_input_has_the_plain_price() -> None:
    cached = line(read=1_000, write_5m=100, write_1h=10, input=1, output=5)
    assert cost_alternatives([cached]).without_cache == MODEL.cost(Usage(input=1_111, output=5))


def test_an_unknown_model_stays_as_it_was_billed() -> None:
    other = cost_alternatives([line("a", read=9, write_5m=9, model="gone", cost_usd=Decimal(7))])
    assert set(attrs.astuple(other)) == {Decimal(7)}


@examples(20)
@given(st.lists(lines, max_size=6))
def test_the_bill_lies_between_the_alternatives(some: list[LedgerEntry]) -> None:
    other, cost = cost_alternatives(some), sum((CostTotals.of(each) for each in some), CostTotals()).cost
    assert other.perfect_sharing <= cost <= other.without_sharing
