"""What a way to pass messages between processes must offer to be measured beside ours."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

import attrs

Box = Literal["left", "right"]
"""The two mailboxes of a post."""
Survives = Literal["power cut", "kill -9", "nothing"]

BATCH = 256
"""The most that a reader takes at once."""
POLL = 0.001
"""Seconds between two looks of a reader that nobody wakes."""


class SendingEnd(Protocol):
    """One writer of one mailbox."""

    async def send(self, body: str) -> None:
        """Return once *body* is stored as safely as the peer promises."""
        ...


class ReceivingEnd(Protocol):
    """The one reader of a mailbox."""

    async def receive(self, limit: int = BATCH) -> Sequence[str]:
        """Wait for messages and take at most *limit* that were not taken before, oldest first."""
        ...

    async def acknowledge(self) -> None:
        """Return once nothing that was received can come again."""
        ...


class Mailboxes(Protocol):
    """Two mailboxes. It is pickled into the processes that write and read."""

    def open_sender(self, box: Box, writer: int) -> AbstractAsyncContextManager[SendingEnd]:
        """A writer with this number."""
        ...

    def open_receiver(self, box: Box) -> AbstractAsyncContextManager[ReceivingEnd]:
        """The reader."""
        ...

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        """Store *bodies* in the quickest way there is, and return how many: fewer if it takes too long."""
        ...


@attrs.frozen(kw_only=True)
class Peer:
    """One way to pass messages."""

    name: str
    survives: Survives
    """What a stored message does."""
    promises: str
    """What it guarantees besides, in one line."""
    open_post: Callable[[Path], AbstractAsyncContextManager[Mailboxes]]
    """Empty mailboxes in an empty directory."""
    absence: str | None = None
    """Why it cannot be measured here."""
    is_bare: bool = False
    """Whether it is measured without the library that programs use it by: a limit of what it could do."""
