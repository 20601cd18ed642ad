"""The answer that an agent waits for, told from all other mail."""

from typing import Protocol

import attrs

from coterie.mailbox.contract import Delivery
from coterie.mailbox.envelope import Envelope, Kind
from coterie.mailbox.ids import MessageId
from coterie.mailbox.lifecycle import BODIES
from coterie.mailbox.policy import is_entitled


class Expected(Protocol):
    """A message that somebody waits for."""

    answer: Delivery | None
    """Once it has come."""

    def take(self, delivery: Delivery) -> bool:
        """Whether *delivery* is it; then it is kept. Only the first one is."""
        ...


@attrs.define(eq=False)
class ExpectedReport:
    """What came of a task, from an agent that was started for it."""

    report: MessageId
    answer: Delivery | None = attrs.field(default=None, init=False)

    def take(self, delivery: Delivery) -> bool:
        """As `Expected.take`."""
        envelope = delivery.envelope
        if self.answer is not None or envelope.id != self.report or envelope.kind != "task_notification":
            return False
        self.answer = delivery
        return True


@attrs.define(eq=False, kw_only=True)
class Expectation:
    """One request that was sent, and its answer once there is one."""

    request: MessageId
    asked: str
    """Whom."""
    kind: Kind
    """Of the answer."""
    answer: Delivery | None = attrs.field(default=None, init=False)

    def take(self, delivery: Delivery) -> bool:
        """Whether *delivery* is the answer; then it is kept. Only the first one is."""
        if self.answer is not None or not self._is_answered_by(delivery.envelope):
            return False
        self.answer = delivery
        return True

    def _is_answered_by(self, envelope: Envelope) -> bool:
        if envelope.kind != self.kind or envelope.in_reply_to != self.request or not is_entitled(envelope):
            return False
        # One peer cannot answer for another; the lead, the human and the system answer for each other.
        if envelope.sender.kind == "peer" and envelope.sender.name != self.asked:
            return False
        try:
            BODIES[self.kind].from_body(envelope.body)
        except ValueError:
            return False
        return True
