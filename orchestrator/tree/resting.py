"""Whether those whom an agent has started have nothing left to do: then nobody will write to it any more."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from coterie.mailbox.file.waiting import is_worth_a_turn
from coterie.orchestrator.tree.tenure import Tenure

LOOK_AGAIN = 1.0
"""Seconds after which it is looked again, also if nobody's state has changed: mail can leave without a word."""
HEARING = 5
"""Turns of the event loop in which words that are in a socket's buffer are heard."""

Below = Callable[[], Sequence[Tenure] | None]
"""Those who were started by one agent, or by one of those; None while some are about to be."""


@attrs.define(eq=False)
class Changes:
    """Lets tasks of the root wait until some agent does something else."""

    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def tell(self) -> None:
        """One does."""
        self._waiting.unpark_all()

    async def next(self) -> None:
        """Return at the next change."""
        await self._waiting.park()


async def wait_for_rest(below: Below, mailboxes: Path, changes: Changes) -> None:
    """Return when all *below* are idle, and in none of their *mailboxes* is anything that would wake them."""
    while not await _is_at_rest(below, mailboxes):
        with trio.move_on_after(LOOK_AGAIN):
            await changes.next()


async def _is_at_rest(below: Below, mailboxes: Path) -> bool:
    said = _said(below())
    if said is None:
        return False
    if await trio.to_thread.run_sync(_has_work, [mailboxes / name for name in said]):
        return False
    # Whoever has taken its mail said before that it works: so it is in the buffer of its socket by now, and heard.
    for _ in range(HEARING):
        await trio.lowlevel.checkpoint()
    return _said(below()) == said


def _said(tenures: Sequence[Tenure] | None) -> Mapping[str, tuple[int, int]] | None:
    """How much each has said in which start; None if one of them is at work."""
    if tenures is None or not all(tenure.is_idle for tenure in tenures):
        return None
    charges = {tenure.order.name: tenure.charge for tenure in tenures}
    return {name: (charge.duty.incarnation, charge.words) if charge else (0, 0) for name, charge in charges.items()}


def _has_work(mailboxes: Sequence[Path]) -> bool:
    return any(map(is_worth_a_turn, mailboxes))
