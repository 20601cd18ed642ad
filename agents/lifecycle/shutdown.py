"""Whether an agent was asked to end, by whom, and when it must."""

import attrs
import trio

from coterie.agents.outcome import EndReason
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.ids import MessageId
from coterie.mailbox.lifecycle import ShutdownRequest
from coterie.mailbox.policy import is_entitled


@attrs.define(eq=False)
class Shutdown:
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

    def hear(self, envelope: Envelope) -> None:
        """Take *envelope* for a request if it is one, by somebody who may make it, with a body that can be read."""
        if envelope.kind != "shutdown_request" or not is_entitled(envelope):
            return
        try:
            request = ShutdownRequest.from_body(envelope.body)
        except ValueError:
            return  # it is shown as it is, and does nothing
        self.requests[envelope.id] = envelope
        self.reason = self.reason or request.reason
        self.deadline = min(self.deadline, trio.current_time() + request.deadline)

    def enter(self, ids: list[MessageId]) -> None:
        """Know that the messages with these *ids* are in the conversation."""
        self.is_known = self.is_known or any(id_ in self.requests for id_ in ids)

    def reason_to_end(self, turn: int) -> EndReason | None:
        """Asked before the model call number *turn*: the first after the model was told is its last."""
        if not self.is_known:
            return None
        if self._last_turn is None:
            self._last_turn = turn
        return "shutdown" if turn > self._last_turn else None
