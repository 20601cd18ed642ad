"""A task is over: its place is left, and what became of it is said, by the root where the agent could not."""

import trio

from coterie.agents.lifecycle.releasing import release_tasks
from coterie.mailbox.tasks import Owner, TaskList
from coterie.orchestrator.session import TASKS
from coterie.orchestrator.tree.charge import Charge
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.open_orders import OpenOrders
from coterie.orchestrator.tree.owning import ProcessOwner
from coterie.orchestrator.tree.placing import leave_place
from coterie.orchestrator.tree.restarting import Attempts
from coterie.orchestrator.tree.tenure import Tenure

CONCLUDING = 5.0
"""Seconds that it may take to say what became of an agent."""


async def conclude(tenure: Tenure, attempts: Attempts, owner: ProcessOwner, open_orders: OpenOrders) -> None:
    """Say what became of the task that *attempts* were made at, to the parent too, if the agent could not.

    Also when it is cancelled: each step is shielded, and has its deadline.
    """
    if tenure.stopped_by is not None:
        attempts.stop(tenure.stopped_by)
    is_kept = tenure.order.is_kept and attempts.is_done and tenure.stopped_by is None
    if attempts.charge is not None:
        await _tell_end(attempts.charge, attempts, owner, is_kept=is_kept)
    with trio.move_on_after(CONCLUDING, shield=True):
        # Last: what is open when the root is killed is done again, and what was reported counts once.
        await open_orders.end(attempts.order, attempts.report, is_kept=is_kept)


async def _tell_end(charge: Charge, attempts: Attempts, owner: ProcessOwner, *, is_kept: bool) -> None:
    left = await leave_place(charge.order, owner.grace)
    with trio.move_on_after(CONCLUDING, shield=True):
        if attempts.outcome is not None and not attempts.is_done:
            await owner.announcer.report(charge.duty, attempts.outcome, left)
            await _release_tasks(charge.duty, owner)
        # Before it is told, so that whoever hears of it can write to one that is kept.
        await owner.announcer.set_state(charge.duty.name, "idle" if is_kept else "ended")
    if attempts.outcome is None:
        charge.change("failed", "It could not be started.")
    else:
        charge.change(attempts.outcome.end, attempts.outcome.words)


async def _release_tasks(duty: Duty, owner: ProcessOwner) -> None:
    """Give back what one that was killed could not."""
    directory = owner.office.session.directory / TASKS
    if directory.exists():
        holder = Owner(name=duty.name, incarnation=duty.incarnation)
        await release_tasks(TaskList(directory, owner.clock), holder, owner.tell)
