"""The ledger of a session: what every request to the model used and cost, and what can be learnt from it."""

from coterie.orchestrator.ledger.gate import LedgerGate
from coterie.orchestrator.ledger.ledger import LEDGER, Damage, Ledger, LedgerReading, read_ledger
from coterie.orchestrator.ledger.line import LedgerLine

__all__ = ["LEDGER", "Damage", "Ledger", "LedgerGate", "LedgerLine", "LedgerReading", "read_ledger"]
