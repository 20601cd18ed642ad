"""Replies that an agent waits for, and the requests that it shuts down."""

import attrs
import trio

from coterie.agents.loop.run_result import EndReason
from coterie.mailbox.contract import Delivery
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.policy import has_authority


@attrs.define(eq=False)
class PendingReport:
    """What came of a task, from an agent that was started for it."""

    report: MessageId
    answer: Delivery | None = attrs.field(default=None, init=False)

    def accept(self, delivery: Delivery) -> bool:
        """Keep *delivery* if it is the first message with the report; True if it is."""
        envelope = delivery.envelope
        if self.answer is not None or envelope.id != self.report or envelope.kind != "task_notification":
            return False
        self.answer = delivery
        return True


@attrs.define(eq=False)
class ShutdownState:
    """The end of one start of an agent. Once asked for it is not taken back; the earliest deadline counts."""

    requests: dict[MessageId, Envelope] = attrs.field(factory=dict, init=False)
    """All that ask for it, oldest first; each is to be answered."""
    deadline: float = attrs.field(default=float("inf"), init=False)
    """On trio's clock: what is under way then is interrupted."""
    reason: str = attrs.field(default="", init=False)
    """What the first who asked for it said."""
    is_known: bool = attrs.field(default=False, init=False)
    """Whether the model was told."""
    _last_turn: int | None = attrs.field(default=None, init=False)
    """The number of the model call with which the agent wraps up."""

    def handle(self, envelope: Envelope) -> None:
        """Take *envelope* for a request if it is one, by somebody who may make it, with a body that can be read."""
        if envelope.kind != "shutdown_request" or not has_authority(envelope):
            return
        try:
            request = ShutdownRequest.from_body(envelope.body)
        except ValueError:
            return  # it is shown as it is, and does nothing
        self.requests[envelope.id] = envelope
        self.reason = self.reason or request.reason
        self.deadline = min(self.deadline, trio.current_time() + request.deadline)

    def mark_delivered(self, ids: list[MessageId]) -> None:
        """Know that the messages with these *ids* are in the conversation."""
        self.is_known = self.is_known or any(id_ in self.requests for id_ in ids)

    def reason_to_end(self, turn: int) -> EndReason | None:
        """Asked before the model call number *turn*: the first after the model was told is its last."""
        if not self.is_known:
            return None
        if self._last_turn is None:
            self._last_turn = turn
        return "shutdown" if turn > self._last_turn else None
