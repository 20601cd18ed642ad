"""What a session has spent under earlier roots: its budgets go on where they were."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from coterie.orchestrator.gate import NOTHING, Amount, Earlier
from coterie.orchestrator.ledger.ledger import LEDGER, Ledger, read_ledger
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.ledger.spending import ancestors
from coterie.orchestrator.ledger.under_way import UNDER_WAY, read_under_way


def settle_earlier(directory: Path) -> Earlier:
    """Book what was under way when the last root was killed, and sum up the ledger of the session in *directory*.

    Before another root makes any call. Blocks; raises `OSError`.
    """
    path = directory / LEDGER
    left = read_under_way(directory / UNDER_WAY)
    with Ledger.open(path) as ledger:
        known = set(read_ledger(path).lines)
        for line in left:
            if line not in known:  # else this was killed too, right after it had booked it
                ledger.append(line)
    (directory / UNDER_WAY).unlink(missing_ok=True)
    return spent_by(read_ledger(path).lines)


def spent_by(lines: Iterable[LedgerLine]) -> Earlier:
    """What *lines* come to for the session, for each agent, and for each with all it started."""
    lines = tuple(lines)
    parents = {line.agent: line.parent for line in lines}
    session = NOTHING
    own: defaultdict[str, Amount] = defaultdict(lambda: NOTHING)
    subtree: defaultdict[str, Amount] = defaultdict(lambda: NOTHING)
    for line in lines:
        amount = Amount(dollars=line.cost_usd, tokens=line.usage.total)
        session += amount
        own[line.agent] += amount
        for name in (line.agent, *ancestors(line.agent, parents)):
            subtree[name] += amount
    return Earlier(session=session, own=dict(own), subtree=dict(subtree))
