"""Recording of model calls: the ledger of ended calls, a log of running calls, and spending under earlier supervisors.

After a crash the next root process enters each call that was running into the ledger with its maximum cost. So budgets
also hold after crashes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage
from coterie.clock import Clock
from coterie.files import Appender, check_record, frame_record
from coterie.orchestrator.gateway.budgets import PriorSpending
from coterie.orchestrator.gateway.cost_totals import ancestors
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.permit import CallCost, CallPermit, GatewayCaller

PENDING_CALLS = "calls.jsonl"
"""Name of the session's log of running calls; exists while a root (supervisor) runs, and after it was killed."""


@attrs.define(eq=False)
class PendingCalls:
    """Append-only log of running model calls of one root (supervisor): a record at the start and the end of each."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "PendingCalls":
        """Replace the log *path* by an empty one; the ledger must contain the old one's calls. Raises `OSError`."""
        path.unlink(missing_ok=True)
        return cls(Appender.open(path))

    def begin(self, call: int, most: LedgerEntry) -> None:
        """Record the start of call number *call*. *most* is its entry at the maximum cost. Raises `OSError`."""
        facts = {"call": call, "most": attrs.asdict(most)}
        self._appender.append(frame_record(msgspec.json.encode(facts)))

    def end(self, call: int) -> None:
        """Record the end of call number *call*. The caller must write its ledger entry before. Raises `OSError`."""
        self._appender.append(frame_record(msgspec.json.encode({"call": call})))

    def close(self) -> None:
        """Close and delete the log. Call it when no call is running."""
        self._appender.close()
        self._appender.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_pending_calls(path: Path) -> tuple[LedgerEntry, ...]:
    """Return the calls that ran when a root (supervisor) was killed, each at its maximum cost; empty without a log.

    An incomplete record is ignored: its call was never sent, because the record is written before. Blocks on the disk.
    Raises `OSError`.
    """
    if not path.exists():
        return ()
    calls: dict[int, LedgerEntry] = {}
    for content in path.read_bytes().split(b"\n"):
        try:
            check_record(content)
            facts: dict[str, Any] = msgspec.json.decode(content)
            most = facts.get("most")
            if most is None:
                calls.pop(facts["call"], None)
            else:
                calls[facts["call"]] = msgspec.convert(most, LedgerEntry)
        except ValueError:
            continue
    return tuple(calls.values())


@attrs.frozen
class LedgerRecorder:
    """Writes the log of running calls, and one ledger entry for each billed call of the session."""

    _ledger: Ledger
    _clock: Clock
    _emit: Callable[[Event], None]
    _pending: PendingCalls | None = None
    """Log of running calls, from which the next supervisor learns them if this one is killed; None to write no log."""

    def begin(self, permit: CallPermit) -> None:
        """Log an admitted call with its maximum cost. If the write fails, a `LayerFailed` event is emitted."""
        if self._pending is not None:
            with self._emitting_failures():
                most = self._entry(permit.caller, permit.intent, permit.intent.most, is_estimated=True)
                self._pending.begin(permit.call, most)

    def record(self, settled: CallCost) -> None:
        """Append an ended call to the ledger unless it was free; log its end. A failed write emits `LayerFailed`."""
        with self._emitting_failures():
            if settled.end != "free":
                entry = self._entry(settled.caller, settled.intent, settled.usage, is_estimated=settled.is_estimated)
                self._ledger.append(entry)
            if self._pending is not None:
                self._pending.end(settled.call)

    def _entry(self, caller: GatewayCaller, intent: CallIntent, usage: Usage, *, is_estimated: bool) -> LedgerEntry:
        return LedgerEntry(
            at=self._clock.now(),
            agent=caller.agent,
            incarnation=caller.incarnation,
            parent=caller.parent,
            purpose=intent.purpose,
            model=intent.model.id,
            usage=usage,
            cost_usd=intent.model.cost(usage),
            prefix=intent.prefix.hex(),
            expected_read=intent.expected_read,
            is_estimated=is_estimated,
        )

    @contextmanager
    def _emitting_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self._emit(LayerFailed(layer="ledger", reason=str(exc)))


def settle_interrupted_calls(directory: Path) -> PriorSpending:
    """Enter the calls that ran when the last root (supervisor) was killed into the ledger; return spending so far.

    Call it before the new root makes a model call. Blocks on the disk. Raises `OSError`.
    """
    path = directory / LEDGER
    left = read_pending_calls(directory / PENDING_CALLS)
    with Ledger.open(path) as ledger:
        known = set(read_ledger(path).lines)
        for line in left:
            if line not in known:  # recorded if an earlier settlement was killed after this append
                ledger.append(line)
    (directory / PENDING_CALLS).unlink(missing_ok=True)
    return sum_spending(read_ledger(path).lines)


def sum_spending(lines: Iterable[LedgerEntry]) -> PriorSpending:
    """Return the dollars of *lines* for the whole session, and for each agent with its descendants."""
    lines = tuple(lines)
    parents = {line.agent: line.parent for line in lines}
    subtree: defaultdict[str, Decimal] = defaultdict(Decimal)
    for line in lines:
        for name in (line.agent, *ancestors(line.agent, parents)):
            subtree[name] += line.cost_usd
    return PriorSpending(session=sum((line.cost_usd for line in lines), Decimal(0)), subtree=dict(subtree))
