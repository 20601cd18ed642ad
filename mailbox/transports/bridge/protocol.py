"""Protocol of the bridge (mail between sessions): the handshake, and the replies to messages.

The connecting side sends `Hello` and waits for the reply. Then it sends messages, and waits for a reply after each.
After invalid bytes the listening side replies with a refusal and closes the connection.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

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

DeliveryOutcome = Literal["welcome", "accepted", "held", "refused", "later"]


@attrs.frozen
class _Frame:
    """Base of the JSON objects that two sessions exchange over the bridge, each as one length-prefixed frame."""

    def to_bytes(self) -> bytes:
        """Return this object encoded as JSON, without the length prefix of the frame."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode an object that `to_bytes` wrote. Raises `PeerInvalid` for any other *data*."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            name = "greeting" if cls is Hello else "reply"
            raise PeerInvalid(f"the other process sent no valid {name}; use one version of Coterie: {exc}") from exc


@attrs.frozen(kw_only=True)
class Hello(_Frame):
    """First message of the connecting session, with its id and protocol version."""

    session: str
    v: int = VERSION


@attrs.frozen(kw_only=True)
class DeliveryReply(_Frame):
    """Reply of the listening session to a `Hello` or to a message."""

    outcome: DeliveryOutcome
    session: str
    """Id of the replying session."""
    id: MessageId | None = None
    """Id of an accepted or held message; for a repeat, the id of the first copy."""
    stored: float | None = None
    reason: str = ""
    """Reason of a refusal or a delay, as text."""
    refusal: str | None = None
    """Class name of the error with which a message was refused, or None; the error's attributes are in `fields`."""
    fields: dict[str, Any] = attrs.field(factory=dict)
    wait: float = 0.0
    """Seconds that the sender should wait before a retry, with the outcome `later`; else 0."""

    @property
    def is_received(self) -> bool:
        """True if the other session has stored the message."""
        return self.outcome in ("accepted", "held")


_SENT_ERRORS = (BridgeRefused, MailboxFull, MessageTooLarge, NameInvalid, NotAllowed, RecipientEnded, UnknownRecipient)
# msgspec cannot create exceptions, so each error is decoded as a struct with the same fields first.
_SHAPES: Mapping[str, tuple[type[SendRefused], type[msgspec.Struct]]] = {
    kind.__name__: (kind, msgspec.defstruct(kind.__name__, [(field.name, field.type) for field in attrs.fields(kind)]))
    for kind in _SENT_ERRORS
}


def refusal_reply(session: str, error: SendRefused) -> DeliveryReply:
    """Return the reply with which *session* refuses a message because of *error*."""
    name = type(error).__name__
    _, shape = _SHAPES.get(name, (None, msgspec.Struct))
    fields = {field: getattr(error, field) for field in shape.__struct_fields__}
    return DeliveryReply(outcome="refused", session=session, reason=str(error), refusal=name, fields=fields)


def parse_refusal(answer: DeliveryReply, address: str) -> SendRefused:
    """Return the error for a refusal by the session at *address*: the error that *answer* describes.

    If its class is unknown or its fields are invalid, return a `BridgeRefused` with the reason in *answer*.
    """
    kind, shape = _SHAPES.get(answer.refusal or "", (None, None))
    if kind is None or shape is None:
        return BridgeRefused(address, answer.reason)
    try:
        return kind(**msgspec.structs.asdict(msgspec.convert(answer.fields, shape)))
    except msgspec.ValidationError:
        return BridgeRefused(address, answer.reason)
