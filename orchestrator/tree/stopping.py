"""Stopping a process: it is asked to end, then wait, terminate, wait, kill; with its group, and to the end."""

import signal

import trio

from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.lifecycle import ShutdownRequest
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.hosting import Started


def request_to_end(duty: Duty, request: ShutdownRequest, sender: Sender, created: float) -> Envelope:
    """What asks one start of one agent to end; another start of the name does not heed it."""
    return Envelope(
        sender=sender,
        recipient=Recipient(name=duty.name, incarnation=duty.incarnation),
        sequence=1,
        kind=request.kind,
        body=request.to_body(),
        created=created,
    )


async def stop(child: Started, grace: float) -> int:
    """The status of *child*, reaped. It has *grace* seconds to end by itself, and as many after SIGTERM.

    Whatever is left of its group is killed with it. Call it shielded: a process must not outlive its owner.
    """
    with trio.move_on_after(grace):
        await child.ended()
    child.send_signal(signal.SIGTERM)
    with trio.move_on_after(grace):
        await child.ended()
    # Also of one that has ended by itself: its group keeps its number until it is reaped.
    child.send_signal_to_group(signal.SIGKILL)
    return await child.wait()
