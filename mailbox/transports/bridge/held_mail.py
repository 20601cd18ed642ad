"""Held mail: messages from other sessions that wait until the user releases or drops them."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import MailLimits, Receipt, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.transports.bridge.spool import Spool

DIRECTORY = "held"


@attrs.define(eq=False)
class NoHeldMessage(MailboxError):
    """No held message has this id: it never existed, or was released or dropped already."""

    id: str

    def __str__(self) -> str:
        return f"no held message has the id {self.id!r}"


@attrs.define(eq=False)
class HeldMail:
    """Messages from other sessions that one session holds until the user releases or drops them.

    Any process of the user may do so, even if the session does not run.
    """

    _spool: Spool

    @classmethod
    def of(cls, mail: Path, clock: Clock, bury: StoreDeadLetter, limits: MailLimits | None = None) -> "HeldMail":
        """Return the held messages below *mail*, the mail directory of a session. *bury* stores dead letters."""
        return cls(Spool(mail / DIRECTORY, DIRECTORY, bury, clock, limits or MailLimits()))

    async def hold(self, envelope: Envelope) -> None:
        """Store *envelope* until released or dropped. Raises `MailboxFull`, `MailboxFailed` or `NameInvalid`."""
        await trio.to_thread.run_sync(self._spool.put, envelope)

    async def messages(self) -> list[Envelope]:
        """Return all held messages, oldest first. Corrupt messages become dead letters. Raises `MailboxFailed`."""

        def read_sync() -> list[Envelope]:
            return [envelope for file in self._spool.files() if (envelope := self._spool.read(file)) is not None]

        return await trio.to_thread.run_sync(read_sync)

    async def release(self, id_: MessageId, deliver: Callable[[Envelope], Awaitable[Receipt]]) -> Receipt:
        """Pass the held message *id_* to *deliver*, which stores it, and then delete the held copy.

        After a crash between these steps the message is still held. If it is released again, the transport drops it by
        its id. Raises `NoHeldMessage`, `MailboxFailed` and the errors of *deliver*. Then the message is still held.
        """
        file, envelope = await self._find(id_)
        receipt = await deliver(envelope)
        await trio.to_thread.run_sync(self._spool.remove, file)
        return receipt

    async def drop(self, id_: MessageId) -> None:
        """Move the held message *id_* to the dead letters. Raises `NoHeldMessage` and `MailboxFailed`."""
        file, envelope = await self._find(id_)
        await trio.to_thread.run_sync(self._spool.dead_letter, file, envelope, "refused", "dropped by the user")

    async def _find(self, id_: MessageId) -> tuple[Path, Envelope]:
        def find_sync() -> tuple[Path, Envelope] | None:
            file = self._spool.find(id_)
            envelope = self._spool.read(file) if file is not None else None
            return None if file is None or envelope is None else (file, envelope)

        found = await trio.to_thread.run_sync(find_sync)
        if found is None:
            raise NoHeldMessage(id_)
        return found
