"""Keeping the books of a session: what each call came to, as the gate tells it, becomes a line of the ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from coterie.agents.events import Event, LayerFailed
from coterie.agents.gate import Intent
from coterie.agents.usage import Usage
from coterie.clock import Clock
from coterie.orchestrator.gate import Asking, SessionPermit, Settled
from coterie.orchestrator.ledger.ledger import Ledger
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.ledger.under_way import CallsUnderWay


@attrs.frozen
class Books:
    """Writes down what each call of the session has come to."""

    _ledger: Ledger
    _clock: Clock
    _tell: Callable[[Event], None]
    _under_way: CallsUnderWay | None = None
    """Where it is noted what this process could not book if it were killed; None for nowhere."""

    def begin(self, permit: SessionPermit) -> None:
        """Note a call that is admitted, at the most it can cost. What cannot be noted is an event."""
        if self._under_way is not None:
            with self._telling():
                most = self._line(permit.asking, permit.intent, permit.intent.most, is_estimated=True)
                self._under_way.begin(permit.call, most)

    def book(self, settled: Settled) -> None:
        """Append a line, unless the call was free. A line that cannot be written is an event: the work goes on."""
        with self._telling():
            if settled.end != "free":
                line = self._line(settled.asking, settled.intent, settled.usage, is_estimated=settled.is_estimated)
                self._ledger.append(line)
            if self._under_way is not None:
                self._under_way.end(settled.call)

    def _line(self, asking: Asking, intent: Intent, usage: Usage, *, is_estimated: bool) -> LedgerLine:
        return LedgerLine.of(
            intent,
            usage,
            at=self._clock.now(),
            agent=asking.agent,
            incarnation=asking.incarnation,
            parent=asking.parent,
            is_estimated=is_estimated,
        )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self._tell(LayerFailed(layer="ledger", reason=str(exc)))
