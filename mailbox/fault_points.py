"""Points in the mail transports at which a scenario injects faults, such as a lost or delayed message.

Message ids and redelivery must correct the effects of these faults. A process injects faults into mail only inside a
`mail_faults` block. For file writes there is `coterie.files.file_faults`.
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
"""Place of a fault: queue in memory, mailbox file, wakeup of a file mailbox's reader, or bridge to another session."""


class MailFaults(Protocol):
    """Source of mail faults. The transports ask it about every message that they move."""

    def trigger(self, fault: MailFault, route: MailRoute, recipient: str) -> float | None:
        """Return None unless *fault* is to be injected now into a message to *recipient* on *route*.

        If it is, return the duration in seconds for the fault `delay`; for other faults, the number has no meaning.
        """
        ...


_hook: MailFaults | None = None


@contextmanager
def mail_faults(hook: MailFaults) -> Iterator[None]:
    """Let *hook* decide on faults in all mail of this process until the block ends."""
    global _hook  # noqa: PLW0603 - faults belong to the process, like a faulty disk
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def trigger(fault: MailFault, route: MailRoute, recipient: str) -> float | None:
    """Return the result of `MailFaults.trigger` of this process's fault source; None for no fault or no source."""
    return None if _hook is None else _hook.trigger(fault, route, recipient)


@attrs.define(eq=False)
class FaultPoint:
    """Point between a mailbox and its reader where reads can fail or be delayed, and messages can be reordered."""

    route: MailRoute
    recipient: str
    _last_seen: Hashable = None
    """Identity of the message that was passed to the last call of `can_read`."""
    _readable_at: float | None = None
    """Time by `trio.current_time` from which the delayed message may be read; None if no message is delayed."""

    def can_read(self, what: Hashable) -> bool:
        """Return True if the next message may be read now; False if a fault makes this read fail, or delays it.

        *what* identifies the message. Faults are injected once for each message, so the reader gets it at a later call.
        """
        if _hook is None:
            return True
        if what != self._last_seen:
            self._last_seen = what
            if trigger("drop", self.route, self.recipient) is not None:
                return False
            if (seconds := trigger("delay", self.route, self.recipient)) is not None:
                self._readable_at = trio.current_time() + seconds
        if self._readable_at is not None and trio.current_time() < self._readable_at:
            return False
        self._readable_at = None
        return True

    async def wait_for_delay(self) -> None:
        """Sleep until the message that `can_read` has delayed may be read. Return immediately if none is delayed."""
        if self._readable_at is not None:
            await trio.sleep_until(self._readable_at)

    def reorder(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return *deliveries*, with two neighbours swapped if this fault is injected now.

        Messages of the same sender are never swapped, because transports promise their order.
        """
        reordered = list(deliveries)
        for index in range(1, 0 if _hook is None else len(reordered)):
            before, after = reordered[index - 1 : index + 1]
            if before.envelope.sender.name == after.envelope.sender.name:
                continue
            if trigger("reorder", self.route, self.recipient) is None:
                break
            reordered[index - 1 : index + 1] = after, before
            break
        return reordered


FAULTS_VARIABLE = "COTERIE_FAULTS"
"""Environment variable with the path of the fault rules; only a scenario sets it."""


@contextmanager
def inject_faults(process: str) -> Iterator[None]:
    """Inject the faults of the scenario into file writes and mail of this process until the block ends.

    Fault rules refer to this process as *process*. Without a scenario this does nothing.
    """
    if (rules := os.environ.get(FAULTS_VARIABLE)) is None:
        yield
        return
    # Imported here, so that a process without a scenario never loads the module.
    from coterie.mailbox.fault_injection import FaultRules  # noqa: PLC0415

    fault_rules = FaultRules(Path(rules), process)
    with file_faults(fault_rules), mail_faults(fault_rules):
        yield
