"""What a report is made of, as JSON: for programs, with every figure and nothing left out."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.orchestrator.ledger.report import row_mapping, spending_mapping
from coterie.orchestrator.ledger.spending import Grouping, Row
from coterie.orchestrator.reporting.facts import Costs, Request, SessionFacts


def to_mapping(facts: SessionFacts) -> dict[str, Any]:
    """All of *facts* as JSON has it; dollars are exact decimal numbers in strings."""
    apart = {"costs": _costs(facts.costs), "requests": [_request(request) for request in facts.requests]}
    others = attrs.asdict(attrs.evolve(facts, requests=()), value_serializer=_plain)
    return {**others, **apart}


def _costs(costs: Costs) -> dict[str, Any]:
    """As `coterie costs --json` has them, for each grouping."""
    groups: Sequence[tuple[str, Grouping, Sequence[Row]]] = (
        ("agents", "agent", costs.agents),
        ("purposes", "purpose", costs.purposes),
        ("models", "model", costs.models),
    )
    return {
        **{name: [row_mapping(row, by) for row in rows] for name, by, rows in groups},
        "total": spending_mapping(costs.total),
        **{f"{name}_usd": format(cost, "f") for name, cost in attrs.asdict(costs.alternatives).items()},
    }


def _request(request: Request) -> dict[str, Any]:
    """The line of the ledger, what it missed, and why."""
    line = attrs.asdict(request.line, value_serializer=_plain)
    broke = None if request.broke is None else _plain(None, None, request.broke)
    return {**line, "missed": request.line.missed, "broke": broke}


def _plain(_owner: type | None, _field: Any, value: Any) -> Any:
    match value:
        case Decimal():
            return format(value, "f")
        case Path():
            return str(value)
        case msgspec.Struct():
            facts = msgspec.to_builtins(value)
            facts.pop("kind", None)  # where it stands says what it is
            return facts
        case _:
            return value
