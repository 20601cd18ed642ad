"""Stopping a process that was asked to end: wait, terminate, wait, kill; with its group, and to the end."""

import signal

import trio

from coterie.orchestrator.starting import Child


async def stop(child: Child, grace: float) -> int:
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
