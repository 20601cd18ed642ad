"""Replies that an agent waits for, and shutdown requests to it."""

import attrs
import trio

from coterie.agents.loop.run_result import EndReason
from coterie.mailbox.contract import Delivery
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.message_bodies import ShutdownRequest
from coterie.mailbox.policy import has_authority


@attrs.define(eq=False)
class PendingReport:
    """An expected task report, identified by its message id."""

    report: MessageId
    answer: Delivery | None = attrs.field(default=None, init=False)

    def accept(self, delivery: Delivery) -> bool:
        """Keep *delivery* if it is the first message with the expected task report; return True if it was kept."""
        envelope = delivery.envelope
        if self.answer is not None or envelope.id != self.report or envelope.kind != "task_notification":
            return False
        self.answer = delivery
        return True


@attrs.define(eq=False)
class ShutdownState:
    """Shutdown requests to one incarnation of an agent. They cannot be withdrawn; the earliest deadline counts."""

    requests: dict[MessageId, Envelope] = attrs.field(factory=dict, init=False)
    """All requests by id, oldest first; each one needs an answer."""
    deadline: float = attrs.field(default=float("inf"), init=False)
    """Time on trio's clock at which a running turn is cancelled."""
    reason: str = attrs.field(default="", init=False)
    """Reason of the first request that has one."""
    is_known: bool = attrs.field(default=False, init=False)
    """True if a request has entered the conversation."""
    _last_turn: int | None = attrs.field(default=None, init=False)
    """Number of the last model call, in which the agent can finish its work."""

    def handle(self, envelope: Envelope) -> None:
        """Register *envelope* if it is a valid shutdown request from an authorised sender."""
        if envelope.kind != "shutdown_request" or not has_authority(envelope):
            return
        try:
            request = ShutdownRequest.from_body(envelope.body)
        except ValueError:
            return  # the model sees an unreadable request as text; it has no effect
        self.requests[envelope.id] = envelope
        self.reason = self.reason or request.reason
        self.deadline = min(self.deadline, trio.current_time() + request.deadline)

    def mark_delivered(self, ids: list[MessageId]) -> None:
        """Note that the messages with these *ids* have entered the conversation."""
        self.is_known = self.is_known or any(id_ in self.requests for id_ in ids)

    def reason_to_end(self, turn: int) -> EndReason | None:
        """Return `shutdown` if *turn* comes after the one turn that the model has since it saw a request."""
        if not self.is_known:
            return None
        if self._last_turn is None:
            self._last_turn = turn
        return "shutdown" if turn > self._last_turn else None
