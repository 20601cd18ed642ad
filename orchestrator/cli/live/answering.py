"""Having the root do what a key asked for, and saying what came of it."""

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.cli.live.steering import Order
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.requests import DecideApproval
from coterie.orchestrator.root_record import RootProcess


async def carry_out(root: RootProcess | None, order: Order) -> str:
    """Ask *root* for *order*; what to tell whoever pressed the key. Cancellation does not take the order back."""
    if root is None:
        return "the session does not run: nobody can be asked"
    try:
        await ask_root(root, order)
    except ConfigInvalid as exc:
        return exc.reason
    return done_text(order)


def done_text(order: Order) -> str:
    """What an order has brought about."""
    if isinstance(order, DecideApproval):
        return "approved" if order.approve else "rejected"
    return f"stopped {order.name}"
