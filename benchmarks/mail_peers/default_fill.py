"""Default way to fill a mailbox: sending the messages one by one."""

import time
from collections.abc import Sequence

from benchmarks.mail_peers.peer import Box, Mailboxes

PATIENCE = 5.0


async def send_each(post: Mailboxes, box: Box, bodies: Sequence[str], patience: float = PATIENCE) -> int:
    """Send *bodies* one after the other, for at most *patience* seconds; return how many were sent."""
    give_up = time.perf_counter() + patience
    async with post.open_sender(box, 0) as sender:
        for count, body in enumerate(bodies):
            if time.perf_counter() > give_up:
                return count
            await sender.send(body)
    return len(bodies)
