"""Waiting for a process to end, without a thread and without a poll."""

import os

import trio


async def wait_ended(pid: int) -> None:
    """Return when the process *pid*, a child not yet reaped, has ended; reaping it is still the caller's."""
    descriptor = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
