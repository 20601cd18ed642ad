"""Mail from other sessions that waits for a decision of the user."""

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
    """No letter with this id is held: it never was, or somebody has decided already."""

    id: str

    def __str__(self) -> str:
        return f"no letter {self.id!r} is held"


@attrs.define(eq=False)
class HeldMail:
    """The held letters of one session; any process of the user may decide, the session need not run."""

    _spool: Spool

    @classmethod
    def of(cls, mail: Path, clock: Clock, bury: StoreDeadLetter, limits: MailLimits | None = None) -> "HeldMail":
        """What is held below *mail*, the mail directory of a session."""
        return cls(Spool(mail / DIRECTORY, DIRECTORY, bury, clock, limits or MailLimits()))

    async def hold(self, envelope: Envelope) -> None:
        """Store *envelope* durably. Raises `MailboxFull` and `MailboxFailed`."""
        await trio.to_thread.run_sync(self._spool.put, envelope)

    async def messages(self) -> list[Envelope]:
        """All that is held, the oldest first. Corrupt ones are buried on the way. Raises `MailboxFailed`."""

        def read_sync() -> list[Envelope]:
            return [letter for file in self._spool.files() if (letter := self._spool.read(file)) is not None]

        return await trio.to_thread.run_sync(read_sync)

    async def release(self, id_: MessageId, deliver: Callable[[Envelope], Awaitable[Receipt]]) -> Receipt:
        """Hand the letter to *deliver*, and forget it once that has stored it.

        A crash in between leaves it held; released again, the transport drops it by its id. Raises `NoHeldMessage`,
        `MailboxFailed` and what *deliver* raises; then it is still held.
        """
        file, letter = await self._find(id_)
        receipt = await deliver(letter)
        await trio.to_thread.run_sync(self._spool.remove, file)
        return receipt

    async def drop(self, id_: MessageId) -> None:
        """Move the letter to the dead. Raises `NoHeldMessage` and `MailboxFailed`."""
        file, letter = await self._find(id_)
        await trio.to_thread.run_sync(self._spool.dead_letter, file, letter, "refused", "dropped by the user")

    async def _find(self, id_: MessageId) -> tuple[Path, Envelope]:
        def find_sync() -> tuple[Path, Envelope] | None:
            file = self._spool.find(id_)
            letter = self._spool.read(file) if file is not None else None
            return None if file is None or letter is None else (file, letter)

        found = await trio.to_thread.run_sync(find_sync)
        if found is None:
            raise NoHeldMessage(id_)
        return found
