"""Recording of model calls in the ledger, with the log of pending calls and the costs of earlier roots.

The next root books the most that each of them can have cost, so that a budget holds over any crash.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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
from coterie.orchestrator.gateway.budgets import NO_COST, Amount, PriorSpending
from coterie.orchestrator.gateway.cost_totals import ancestors
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.permit import CallCost, CallPermit, GatewayCaller

PENDING_CALLS = "calls.jsonl"
"""In the directory of a session, for as long as its root runs."""


@attrs.define(eq=False)
class PendingCalls:
    """The log of one root: a record when a call begins, and one when it is over."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "PendingCalls":
        """Begin anew at *path*: what was there is in the ledger by now. Raises `OSError`."""
        path.unlink(missing_ok=True)
        return cls(Appender.open(path))

    def begin(self, call: int, most: LedgerEntry) -> None:
        """The *call* of this number may be billed from now on, as *most* says. Raises `OSError`."""
        facts = {"call": call, "most": attrs.asdict(most)}
        self._appender.append(frame_record(msgspec.json.encode(facts)))

    def end(self, call: int) -> None:
        """It is over, and in the ledger if it was billed. Raises `OSError`."""
        self._appender.append(frame_record(msgspec.json.encode({"call": call})))

    def close(self) -> None:
        """Nothing is under way any more."""
        self._appender.close()
        self._appender.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_pending_calls(path: Path) -> tuple[LedgerEntry, ...]:
    """The calls of a root that was killed, each at the most it can have cost; none without such a log.

    What a torn write left was never sent: a call begins when its record is written. Blocks; raises `OSError`.
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
    """Writes down what each call of the session has come to."""

    _ledger: Ledger
    _clock: Clock
    _emit: Callable[[Event], None]
    _pending: PendingCalls | None = None
    """Where it is noted what this process could not book if it were killed; None for nowhere."""

    def begin(self, permit: CallPermit) -> None:
        """Note a call that is admitted, at the most it can cost. What cannot be noted is an event."""
        if self._pending is not None:
            with self._emitting_failures():
                most = self._line(permit.caller, permit.intent, permit.intent.most, is_estimated=True)
                self._pending.begin(permit.call, most)

    def record(self, settled: CallCost) -> None:
        """Append a line, unless the call was free. A line that cannot be written is an event: the work goes on."""
        with self._emitting_failures():
            if settled.end != "free":
                line = self._line(settled.caller, settled.intent, settled.usage, is_estimated=settled.is_estimated)
                self._ledger.append(line)
            if self._pending is not None:
                self._pending.end(settled.call)

    def _line(self, asking: GatewayCaller, intent: CallIntent, usage: Usage, *, is_estimated: bool) -> LedgerEntry:
        return LedgerEntry.of(
            intent,
            usage,
            at=self._clock.now(),
            agent=asking.agent,
            incarnation=asking.incarnation,
            parent=asking.parent,
            is_estimated=is_estimated,
        )

    @contextmanager
    def _emitting_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self._emit(LayerFailed(layer="ledger", reason=str(exc)))


def settle_interrupted_calls(directory: Path) -> PriorSpending:
    """Book what was under way when the last root was killed, and sum up the ledger of the session in *directory*.

    Before another root makes any call. Blocks; raises `OSError`.
    """
    path = directory / LEDGER
    left = read_pending_calls(directory / PENDING_CALLS)
    with Ledger.open(path) as ledger:
        known = set(read_ledger(path).lines)
        for line in left:
            if line not in known:  # else this was killed too, right after it had booked it
                ledger.append(line)
    (directory / PENDING_CALLS).unlink(missing_ok=True)
    return sum_spending(read_ledger(path).lines)


def sum_spending(lines: Iterable[LedgerEntry]) -> PriorSpending:
    """What *lines* come to for the session, for each agent, and for each with all it started."""
    lines = tuple(lines)
    parents = {line.agent: line.parent for line in lines}
    session = NO_COST
    own: defaultdict[str, Amount] = defaultdict(lambda: NO_COST)
    subtree: defaultdict[str, Amount] = defaultdict(lambda: NO_COST)
    for line in lines:
        amount = Amount(dollars=line.cost_usd, tokens=line.usage.total)
        session += amount
        own[line.agent] += amount
        for name in (line.agent, *ancestors(line.agent, parents)):
            subtree[name] += amount
    return PriorSpending(session=session, own=dict(own), subtree=dict(subtree))
