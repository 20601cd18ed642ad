"""Message envelopes and message ids. An envelope is immutable and can be signed. Copies of a message have equal ids."""

import hashlib
import hmac
import itertools
import math
import operator
import os
import time
from typing import Literal, NewType

import attrs
import msgspec

from coterie.mailbox.address import check_name
from coterie.mailbox.errors import EnvelopeCorrupt, NameInvalid

MessageId = NewType("MessageId", str)

_SIX_BYTES = (1 << 48) - 1
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_message_id() -> MessageId:
    """Return a new message id, a UUID of version 7: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000 & _SIX_BYTES
    digits = (milliseconds.to_bytes(6, "big") + os.urandom(10)).hex()
    # The version comes before the random bits, and the variant is a digit that begins with the bits 10.
    return MessageId(
        f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
    )


VERSION = 1
MAC_SIZE = 16
_NO_MAC = b'"mac":null'
"""Bytes of an envelope without a MAC. JSON escapes quotes inside strings, so these bytes occur only once."""

SenderKind = Literal["human", "lead", "peer", "system"]
MessageKind = Literal[
    "message",
    "shutdown_request",
    "shutdown_response",
    "plan_approval_request",
    "plan_approval_response",
    "permission_request",
    "permission_response",
    "task_assignment",
    "task_notification",
    "idle",
]


@attrs.frozen(kw_only=True)
class Sender:
    """Sender of a message: an agent in one incarnation (numbered start), the user, or the root (supervisor process)."""

    name: str
    incarnation: int
    session: str
    kind: SenderKind


@attrs.frozen(kw_only=True)
class Recipient:
    """Recipient of a message: an agent in any incarnation (numbered start), or in only one."""

    name: str
    incarnation: int | None = None
    """The only incarnation that may receive the message; None for any."""


class _Encoded:
    """Base of `Envelope` with a slot that caches the encoded bytes.

    The slot is not a field, so decoding a JSON object cannot set it.
    """

    __slots__ = ("_bytes",)

    _bytes: bytes


@attrs.frozen(kw_only=True)
class Envelope(_Encoded):
    """One message from one sender to one recipient. It is encoded as a JSON object."""

    sender: Sender
    recipient: Recipient
    sequence: int
    """Number of this message, from 1, among those from this incarnation (start) of the sender to this recipient."""
    kind: MessageKind = "message"
    body: str
    """Text of the message; for every kind except "message", a JSON object as text."""
    summary: str | None = None
    in_reply_to: MessageId | None = None
    group: str | None = None
    """Id shared by the messages of one broadcast."""
    created: float
    """Time at which the sender created the message, in seconds since 1970."""
    expires: float | None = None
    """Time from which the message is expired, in seconds since 1970; None: it never expires."""
    traceparent: str | None = None
    """W3C trace context of the sender, as in the HTTP header `traceparent`; None without tracing."""
    id: MessageId = attrs.field(factory=new_message_id)
    """Id for deduplication; assigned by the sender."""
    v: int = VERSION
    mac: str | None = None
    """MAC over all other fields, made with the key of the sender (see `sign`); None if the message is not signed."""

    def __attrs_post_init__(self) -> None:
        # JSON cannot represent NaN and infinity, so such a value would not survive a round trip.
        if not math.isfinite(self.created) or not math.isfinite(self.expires or 0.0):
            raise ValueError(f"created={self.created}, expires={self.expires}: each must be a finite time")

    def to_bytes(self) -> bytes:
        """Return the envelope encoded as one JSON object without a newline."""
        content: bytes | None = getattr(self, "_bytes", None)
        if content is None:
            _put_bytes(self, content := msgspec.json.encode(self))
        return content

    @classmethod
    def from_bytes(cls, data: bytes) -> "Envelope":
        """Decode an envelope that `to_bytes` encoded. Raises `EnvelopeCorrupt` if *data* is no valid envelope."""
        try:
            envelope = _decoder.decode(data)
            check_name(envelope.sender.name)
            check_name(envelope.recipient.name)
        except (msgspec.DecodeError, UnicodeDecodeError, NameInvalid, RecursionError) as exc:
            raise EnvelopeCorrupt(str(exc)) from exc
        if envelope.v != VERSION:
            raise EnvelopeCorrupt(f"the message has format version {envelope.v}, not {VERSION}; update Coterie")
        return envelope

    @classmethod
    def from_line(cls, line: bytes) -> "Envelope":
        """Decode *line* as `from_bytes` does, and cache *line* as the result of `to_bytes`. Raises `EnvelopeCorrupt`.

        So the MAC is checked over the bytes that were stored.
        """
        envelope = cls.from_bytes(line)
        _put_bytes(envelope, line)
        return envelope

    def sign(self, key: bytes) -> "Envelope":
        """Return a copy of the envelope with a MAC made with *key*, which must not be empty."""
        copy = _copy(self)
        _put_mac(copy, None)
        return sign_new(copy, key)

    def is_signed_with(self, key: bytes) -> bool:
        """True if the envelope has a MAC that was made with *key* over all other fields."""
        if self.mac is None:
            return False
        return hmac.compare_digest(self.mac.encode(), _mac(self.unsigned_bytes(), key).encode())

    def is_expired(self, now: float) -> bool:
        """True if the message has expired at the time *now*, in seconds since 1970."""
        return self.expires is not None and now >= self.expires

    def unsigned_bytes(self) -> bytes:
        """Return the bytes that the MAC covers: the encoded envelope with null in place of the MAC."""
        content = self.to_bytes()
        if self.mac is None:
            return content
        # Not `replace`, which would also search the body.
        before, _, rest = content.rpartition(b'"mac":' + msgspec.json.encode(self.mac))
        return before + _NO_MAC + rest


def sign_new(envelope: Envelope, key: bytes) -> Envelope:
    """Add a MAC made with *key* to *envelope* itself, and return it. Avoids the copy that `Envelope.sign` makes.

    Only for a new envelope that has no MAC yet and that no other code refers to. *key* must not be empty.
    """
    assert key, "without a key a MAC is a plain hash, which any process can make"
    assert envelope.mac is None, "an existing MAC would become part of the signed bytes"
    unsigned = msgspec.json.encode(envelope)
    _put_mac(envelope, mac := _mac(unsigned, key))
    before, _, rest = unsigned.rpartition(_NO_MAC)
    _put_bytes(envelope, b'%b"mac":"%b"%b' % (before, mac.encode(), rest))
    return envelope


def _mac(unsigned: bytes, key: bytes) -> str:
    return hashlib.blake2b(unsigned, key=key, digest_size=MAC_SIZE).hexdigest()


def _copy(envelope: Envelope) -> Envelope:
    # A quarter of the cost of `attrs.evolve`, which inspects the class and validates every field again.
    copy = object.__new__(Envelope)
    for _ in map(operator.call, _PUTS, itertools.repeat(copy), _values(envelope)):
        pass
    return copy


_MEMBERS = tuple(field.name for field in attrs.fields(Envelope))
_PUTS = tuple(Envelope.__dict__[name].__set__ for name in _MEMBERS)
_put_mac, _put_bytes = Envelope.__dict__["mac"].__set__, _Encoded.__dict__["_bytes"].__set__
"""Setters of the slots `mac` and `_bytes` of a frozen envelope; faster than `object.__setattr__`."""
_values = operator.attrgetter(*_MEMBERS)
_decoder = msgspec.json.Decoder(Envelope)
