"""Keeping the books of a session: what each call came to, as the gate tells it, becomes a line of the ledger."""

from collections.abc import Callable

import attrs

from coterie.agents.events import Event, LayerFailed
from coterie.clock import Clock
from coterie.orchestrator.gate import Settled
from coterie.orchestrator.ledger.ledger import Ledger
from coterie.orchestrator.ledger.line import LedgerLine


@attrs.frozen
class Books:
    """Writes down what each call of the session has come to."""

    _ledger: Ledger
    _clock: Clock
    _tell: Callable[[Event], None]

    def book(self, settled: Settled) -> None:
        """Append a line, unless the call was free. A line that cannot be written is an event: the work goes on."""
        if settled.end == "free":
            return
        asking = settled.asking
        line = LedgerLine.of(
            settled.intent,
            settled.usage,
            at=self._clock.now(),
            agent=asking.agent,
            incarnation=asking.incarnation,
            parent=asking.parent,
            is_estimated=settled.is_estimated,
        )
        try:
            self._ledger.append(line)
        except OSError as exc:
            self._tell(LayerFailed(layer="ledger", reason=str(exc)))
