"""Refusals travel between sessions as a name and fields, never as code."""

from collections.abc import Mapping

import attrs
import msgspec

from coterie.mailbox.bridge.frames import Answer
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

_TRAVELLING = (BridgeRefused, MailboxFull, MessageTooLarge, NameInvalid, NotAllowed, RecipientEnded, UnknownRecipient)
# msgspec does not make exceptions, so each is read as a struct with the same fields first.
_SHAPES: Mapping[str, tuple[type[SendRefused], type[msgspec.Struct]]] = {
    kind.__name__: (kind, msgspec.defstruct(kind.__name__, [(field.name, field.type) for field in attrs.fields(kind)]))
    for kind in _TRAVELLING
}


def refusal_answer(session: str, error: SendRefused) -> Answer:
    """The answer of *session* that says *error*."""
    name = type(error).__name__
    _, shape = _SHAPES.get(name, (None, msgspec.Struct))
    fields = {field: getattr(error, field) for field in shape.__struct_fields__}
    return Answer(outcome="refused", session=session, reason=str(error), refusal=name, fields=fields)


def refusal_of(answer: Answer, address: str) -> SendRefused:
    """The error that *answer* says; what this program does not know comes as `BridgeRefused` with its words."""
    kind, shape = _SHAPES.get(answer.refusal or "", (None, None))
    if kind is None or shape is None:
        return BridgeRefused(address, answer.reason)
    try:
        return kind(**msgspec.structs.asdict(msgspec.convert(answer.fields, shape)))
    except msgspec.ValidationError:
        return BridgeRefused(address, answer.reason)
