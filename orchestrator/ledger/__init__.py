"""The ledger of a session: what every request to the model used and cost, and what can be learnt from it."""

from coterie.orchestrator.ledger.books import Books
from coterie.orchestrator.ledger.ledger import LEDGER, Damage, Ledger, LedgerReading, read_ledger
from coterie.orchestrator.ledger.line import LedgerLine

__all__ = ["LEDGER", "Books", "Damage", "Ledger", "LedgerLine", "LedgerReading", "read_ledger"]
