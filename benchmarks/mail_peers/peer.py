"""Interface of a way to pass messages between processes that is measured."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

import attrs

Box = Literal["left", "right"]
"""The two mailboxes of a peer."""
Survives = Literal["power cut", "kill -9", "nothing"]

BATCH = 256
"""Maximum number of messages that a reader takes in one call."""
POLL = 0.001
"""Seconds between two polls of a reader without a wakeup."""


class SendingEnd(Protocol):
    """One writer of one mailbox."""

    async def send(self, body: str) -> None:
        """Return once *body* is stored as safely as the peer promises."""
        ...


class ReceivingEnd(Protocol):
    """The one reader of a mailbox."""

    async def receive(self, limit: int = BATCH) -> Sequence[str]:
        """Wait for messages and return at most *limit* that were not returned before, oldest first."""
        ...

    async def acknowledge(self) -> None:
        """Return once no received message can be delivered again."""
        ...


class Mailboxes(Protocol):
    """Two mailboxes. The object is pickled into the processes that write and read."""

    def open_sender(self, box: Box, writer: int) -> AbstractAsyncContextManager[SendingEnd]:
        """Return the writer with this number."""
        ...

    def open_receiver(self, box: Box) -> AbstractAsyncContextManager[ReceivingEnd]:
        """Return the reader."""
        ...

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        """Store *bodies* in the fastest way available, and return their number: fewer if it takes too long."""
        ...


@attrs.frozen(kw_only=True)
class Peer:
    """One way to pass messages."""

    name: str
    survives: Survives
    """Failures that a stored message survives."""
    promises: str
    """Other guarantees, in one line."""
    open_post: Callable[[Path], AbstractAsyncContextManager[Mailboxes]]
    """Function that creates empty mailboxes in an empty directory."""
    absence: str | None = None
    """Reason why the peer cannot be measured here."""
    is_bare: bool = False
    """True if the peer is measured without its usual library, as an upper limit."""
