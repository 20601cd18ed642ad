"""A start of an agent is assigned its duty: what was ordered, and what the root knows besides."""

from coterie.agents.spawning import Spawned
from coterie.mailbox.contract import Member
from coterie.mailbox.ids import MessageId
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.tree.at_work import AtWork
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.open_orders import OpenOrders
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.tree.owning import ProcessOwner


def duty_of(order: Order, member: Member, report: MessageId, owner: ProcessOwner, open_orders: OpenOrders) -> Duty:
    """What the start of *order* is told that is *member* on the roster, and whose *report* is expected.

    True for the moment at which it is made: who works for it, and whether its plan was approved, can change at once.
    """
    office = owner.office
    return Duty(
        session=office.session.id,
        name=order.name,
        incarnation=member.incarnation,
        parent=order.parent,
        report=report,
        task=order.task,
        model=order.model,
        settings=order.settings,
        definition=order.definition,
        server=owner.server,
        is_bare=order.is_bare,
        fork=order.fork,
        stays=order.stays,
        directory=order.directory,
        worktree=order.worktree,
        can_ask=owner.user is not None or owner.asks_later,
        above=order.above,
        keys=None if office.keys is None else office.keys.to_hex(),
        believed=tuple(office.files.believed.get(order.name, ())),
        chore=order.chore,
        plan=None if order.plan is None else order.plan.settled(is_lead=order.name == MAIN),
        is_approved=owner.approvals.is_approved(order.name),
        memory=order.memory,
        at_work=_at_work_for(order.name, owner, open_orders),
        has_teammate=_has_teammate(order.name, owner, open_orders),
        is_taken_up=order.is_taken_up,
        mcp=None if owner.mcp is None else owner.mcp.access,
    )


def _at_work_for(name: str, agents: AtWork, open_orders: OpenOrders) -> tuple[Spawned, ...]:
    """Whose reports *name* has to expect, because it had started them before it crashed."""
    children = (tenure for tenure in agents.tenures.values() if tenure.order.parent == name and not tenure.is_idle)
    charges = (tenure.charge for tenure in children if not tenure.order.stays)
    to_come = (each for each in open_orders.of(name) if not each.is_done and not each.request.stays)
    return (
        *(charge.spawned() for charge in charges if charge is not None),
        *(Spawned(name=each.name, incarnation=0, report=each.report) for each in to_come),
    )


def _has_teammate(name: str, agents: AtWork, open_orders: OpenOrders) -> bool:
    """Whether somebody stays whom *name* had started before it crashed."""
    is_kept = any(tenure.order.parent == name and tenure.order.stays for tenure in agents.tenures.values())
    return is_kept or any(each.request.stays for each in open_orders.of(name))
