"""Bridge protocol: handshake, delivery replies, and refusals as a name with fields.

The connecting side sends `Hello` and waits for the reply; then it sends envelopes, one at a time, each answered before
the next. Invalid bytes are answered with one refusal, and the connection is closed.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

import attrs
import msgspec

from coterie.framing import PeerInvalid
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import (
    BridgeRefused,
    MailboxFull,
    MessageTooLarge,
    NameInvalid,
    NotAllowed,
    RecipientEnded,
    SendRefused,
    UnknownRecipient,
)

VERSION = 1

_T = TypeVar("_T")

DeliveryOutcome = Literal["welcome", "accepted", "held", "refused", "later"]


@attrs.frozen(kw_only=True)
class Hello:
    """Who connects, and in which version it speaks."""

    session: str
    v: int = VERSION

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote. Raises `PeerInvalid`."""
        return _decode(data, cls)


@attrs.frozen(kw_only=True)
class DeliveryReply:
    """What became of a greeting or of a message."""

    outcome: DeliveryOutcome
    session: str
    """Who answers."""
    id: MessageId | None = None
    """Of a message that was accepted or is held; of a repeat, the first one's."""
    stored: float | None = None
    reason: str = ""
    """Of a refusal or a delay, in words."""
    refusal: str | None = None
    """The class of the error that refused, and with its fields the error itself."""
    fields: dict[str, Any] = attrs.field(factory=dict)
    wait: float = 0.0
    """Seconds after which to try again, of a delay."""

    @property
    def is_received(self) -> bool:
        """Whether the message is the other session's now."""
        return self.outcome in ("accepted", "held")

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote. Raises `PeerInvalid`."""
        return _decode(data, cls)


def _decode(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        name = "a hello" if kind is Hello else "an answer"
        raise PeerInvalid(f"it does not read as {name}: {exc}") from exc


_SENT_ERRORS = (BridgeRefused, MailboxFull, MessageTooLarge, NameInvalid, NotAllowed, RecipientEnded, UnknownRecipient)
# msgspec does not make exceptions, so each is read as a struct with the same fields first.
_SHAPES: Mapping[str, tuple[type[SendRefused], type[msgspec.Struct]]] = {
    kind.__name__: (kind, msgspec.defstruct(kind.__name__, [(field.name, field.type) for field in attrs.fields(kind)]))
    for kind in _SENT_ERRORS
}


def refusal_reply(session: str, error: SendRefused) -> DeliveryReply:
    """The answer of *session* that says *error*."""
    name = type(error).__name__
    _, shape = _SHAPES.get(name, (None, msgspec.Struct))
    fields = {field: getattr(error, field) for field in shape.__struct_fields__}
    return DeliveryReply(outcome="refused", session=session, reason=str(error), refusal=name, fields=fields)


def parse_refusal(answer: DeliveryReply, address: str) -> SendRefused:
    """The error that *answer* says; what this program does not know comes as `BridgeRefused` with its words."""
    kind, shape = _SHAPES.get(answer.refusal or "", (None, None))
    if kind is None or shape is None:
        return BridgeRefused(address, answer.reason)
    try:
        return kind(**msgspec.structs.asdict(msgspec.convert(answer.fields, shape)))
    except msgspec.ValidationError:
        return BridgeRefused(address, answer.reason)
