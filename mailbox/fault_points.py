"""Where a scenario may disturb transports, below their contract; redelivery, ids and sequence must make up for it.

Nothing is disturbed unless a process says so with `mail_faults`, as `coterie.files.file_faults` does for writes.
"""

import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import attrs
import trio

from coterie.files import file_faults
from coterie.mailbox.contract import Delivery

MailFault = Literal["drop", "duplicate", "delay", "reorder"]
MailRoute = Literal["queue", "file", "bell", "bridge"]
"""bell: what wakes the reader of a file mailbox."""


class MailFaults(Protocol):
    """Asked whenever a message travels."""

    def trigger(self, deed: MailFault, way: MailRoute, recipient: str) -> float | None:
        """Whether this happens now to what goes to *recipient*: for how many seconds, or 0; None if it does not."""
        ...


_hook: MailFaults | None = None


@contextmanager
def mail_faults(hook: MailFaults) -> Iterator[None]:
    """Let *hook* decide over all mail of this process until the block ends."""
    global _hook  # noqa: PLW0603 - faults are a property of the process, as a bad line is
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def trigger(deed: MailFault, way: MailRoute, recipient: str) -> float | None:
    """As `MailFaults.trigger`; None if nobody disturbs this process."""
    return None if _hook is None else _hook.trigger(deed, way, recipient)


async def delay(way: MailRoute, recipient: str) -> None:
    """Let what goes to *recipient* wait, if it is to be late."""
    if (seconds := trigger("delay", way, recipient)) is not None:
        await trio.sleep(seconds)


@attrs.define(eq=False)
class FaultPoint:
    """Between what is stored and its one reader: an attempt to read may fail, or be early, and mail change places."""

    way: MailRoute
    recipient: str
    _met: Hashable = None
    """What was to be read last."""
    _opens: float | None = None
    """When it lets that through; None if nothing is late."""

    def can_read(self, what: Hashable) -> bool:
        """Whether *what* stands next, which is asked for again if not, can be read now. Each is disturbed once."""
        if _hook is None:
            return True
        if what != self._met:
            self._met = what
            if trigger("drop", self.way, self.recipient) is not None:
                return False
            if (seconds := trigger("delay", self.way, self.recipient)) is not None:
                self._opens = trio.current_time() + seconds
        if self._opens is not None and trio.current_time() < self._opens:
            return False
        self._opens = None
        return True

    async def wait_for_delay(self) -> None:
        """Return when what is late may be read."""
        if self._opens is not None:
            await trio.sleep_until(self._opens)

    def reorder(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """*deliveries*, two of which may have changed places: never two of one sender, whose order is a promise."""
        mixed = list(deliveries)
        for index in range(1, 0 if _hook is None else len(mixed)):
            before, after = mixed[index - 1 : index + 1]
            if before.envelope.sender.name == after.envelope.sender.name:
                continue
            if trigger("reorder", self.way, self.recipient) is None:
                break
            mixed[index - 1 : index + 1] = after, before
            break
        return mixed


FAULTS_VARIABLE = "COTERIE_FAULTS"
"""Environment variable with the file of fault rules; only a scenario sets it."""


@contextmanager
def inject_faults(process: str) -> Iterator[None]:
    """Inject the faults of the scenario into writes and mail of this process, which is called *process*."""
    if (rules := os.environ.get(FAULTS_VARIABLE)) is None:
        yield
        return
    # Imported here, so that a process without a scenario never loads it.
    from coterie.mailbox.fault_injection import FaultRules, FileFaultInjector, MailFaultInjector  # noqa: PLC0415

    followed = FaultRules(Path(rules), process)
    with file_faults(FileFaultInjector(followed)), mail_faults(MailFaultInjector(followed)):
        yield
