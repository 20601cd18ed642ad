"""Detection of idle teams and of stalled agents."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from coterie.mailbox.transports.file.pending_digests import needs_turn
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.session_directory import EVENT_LOG, TRANSCRIPT

RECHECK_SECONDS = 1.0
"""Seconds after which it is looked again, also if nobody's state has changed: mail can leave without a word."""
RECEIVE_CHECKPOINTS = 5
"""Turns of the event loop in which words that are in a socket's buffer are heard."""

DescendantRuns = Callable[[], Sequence[AgentRun] | None]
"""Those who were started by one agent, or by one of those; None while some are about to be."""


@attrs.define(eq=False)
class StateChanges:
    """Lets tasks of the root wait until some agent does something else."""

    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def notify(self) -> None:
        """One does."""
        self._waiting.unpark_all()

    async def next(self) -> None:
        """Return at the next change."""
        await self._waiting.park()


async def wait_until_idle(below: DescendantRuns, mailboxes: Path, changes: StateChanges) -> None:
    """Return when all *below* are idle, and in none of their *mailboxes* is anything that would wake them."""
    while not await _is_idle(below, mailboxes):
        with trio.move_on_after(RECHECK_SECONDS):
            await changes.next()


async def _is_idle(below: DescendantRuns, mailboxes: Path) -> bool:
    said = _message_counts(below())
    if said is None:
        return False
    if await trio.to_thread.run_sync(_has_work, [mailboxes / name for name in said]):
        return False
    # Whoever has taken its mail said before that it works: so it is in the buffer of its socket by now, and heard.
    for _ in range(RECEIVE_CHECKPOINTS):
        await trio.lowlevel.checkpoint()
    return _message_counts(below()) == said


def _message_counts(tenures: Sequence[AgentRun] | None) -> Mapping[str, tuple[int, int]] | None:
    """How much each has said in which start; None if one of them is at work."""
    if tenures is None or not all(tenure.is_idle for tenure in tenures):
        return None
    charges = {tenure.order.name: tenure.process for tenure in tenures}
    return {
        name: (charge.duty.incarnation, charge.message_count) if charge else (0, 0) for name, charge in charges.items()
    }


def _has_work(mailboxes: Sequence[Path]) -> bool:
    return any(map(needs_turn, mailboxes))


STALL_SECONDS = 660.0
"""Seconds without a sign of life. A command may run for ten minutes and print nothing, so it must be more."""
STALL_CHECKS = 10
"""How often it is looked for signs within that time."""

Activity = tuple[object, ...]
"""Whatever changes while an agent gets on. Only whether it is the same as before matters."""


async def wait_for_stall(signs: Callable[[], Activity | None], patience: float) -> None:
    """Return when *signs* have been the same for *patience* seconds; None is the sign of who rightly waits."""
    last, since = signs(), trio.current_time()
    while True:
        await trio.sleep(patience / STALL_CHECKS)
        found = signs()
        if found is None or found != last:
            last, since = found, trio.current_time()
        elif trio.current_time() - since >= patience:
            return


def written_bytes(directory: Path) -> Activity:
    """How much the agent has written in its *directory*."""
    return tuple(_size(directory / name) for name in (EVENT_LOG, TRANSCRIPT))


def wakeup_count(pid: int) -> int:
    """How often the process had something to do after it had waited; a stopped one never has.

    The only sign of a long reply that the model thinks about, of which nothing is written before it is whole.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended, as its owner finds out
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
