"""Message envelopes: immutable, signed, and safe to deliver twice; and message ids."""

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
    """A UUID of version 7: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000 & _SIX_BYTES
    digits = (milliseconds.to_bytes(6, "big") + os.urandom(10)).hex()
    # The version comes before the random bits, and the variant is a digit that begins with the bits 10.
    return MessageId(
        f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
    )


VERSION = 1
MAC_SIZE = 16
_NO_MAC = b'"mac":null'
"""A quote inside a string is escaped, so a member stands in one place only, and need not be encoded to be exchanged."""

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
    """Who sends, and which start of that name."""

    name: str
    incarnation: int
    session: str
    kind: SenderKind


@attrs.frozen(kw_only=True)
class Recipient:
    """Who is to get it."""

    name: str
    incarnation: int | None = None
    """The only start of that name it is meant for; None for whichever there is."""


class _Encoded:
    """Where a message keeps its bytes once they are known; no member of it, so no JSON can set it."""

    __slots__ = ("_bytes",)

    _bytes: bytes


@attrs.frozen(kw_only=True)
class Envelope(_Encoded):
    """One message for one recipient."""

    sender: Sender
    recipient: Recipient
    sequence: int
    """Counts what this start of the sender sends to this name, from 1."""
    kind: MessageKind = "message"
    body: str
    """Text; of a structured kind, a JSON object."""
    summary: str | None = None
    in_reply_to: MessageId | None = None
    group: str | None = None
    """Shared by the messages of one broadcast."""
    created: float
    """Seconds since 1970."""
    expires: float | None = None
    """From then on it is dead; None never."""
    traceparent: str | None = None
    """W3C trace context."""
    id: MessageId = attrs.field(factory=new_message_id)
    """Names the message for de-duplication; assigned by the sender."""
    v: int = VERSION
    mac: str | None = None
    """Proves that the sender wrote it; see `sign`."""

    def __attrs_post_init__(self) -> None:
        # JSON has no word for these, so they would not come back as they were.
        if not math.isfinite(self.created) or not math.isfinite(self.expires or 0.0):
            raise ValueError(f"created {self.created}, expires {self.expires}: not both are times")

    def to_bytes(self) -> bytes:
        """One JSON object without a newline."""
        content: bytes | None = getattr(self, "_bytes", None)
        if content is None:
            _put_bytes(self, content := msgspec.json.encode(self))
        return content

    @classmethod
    def from_bytes(cls, data: bytes) -> "Envelope":
        """The envelope that `to_bytes` wrote. Raises `EnvelopeCorrupt`, whatever *data* is."""
        try:
            envelope = _decoder.decode(data)
            check_name(envelope.sender.name)
            check_name(envelope.recipient.name)
        except (msgspec.DecodeError, UnicodeDecodeError, NameInvalid, RecursionError) as exc:
            raise EnvelopeCorrupt(str(exc)) from exc
        if envelope.v != VERSION:
            raise EnvelopeCorrupt(f"version {envelope.v}; this program reads {VERSION}")
        return envelope

    @classmethod
    def from_line(cls, line: bytes) -> "Envelope":
        """As `from_bytes`, of bytes without a newline, which it keeps: a MAC is then over what really stood there."""
        envelope = cls.from_bytes(line)
        _put_bytes(envelope, line)
        return envelope

    def sign(self, key: bytes) -> "Envelope":
        """The same message with a MAC that only a holder of *key*, which is not empty, can make."""
        copy = _copy(self)
        _put_mac(copy, None)
        return sign_new(copy, key)

    def is_signed_with(self, key: bytes) -> bool:
        """Whether its MAC was made with *key* over all that it says."""
        if self.mac is None:
            return False
        return hmac.compare_digest(self.mac.encode(), _mac(self.unsigned_bytes(), key).encode())

    def is_expired(self, now: float) -> bool:
        """Whether nobody should get it any more."""
        return self.expires is not None and now >= self.expires

    def unsigned_bytes(self) -> bytes:
        """What a MAC is made of: as `to_bytes`, without a MAC."""
        content = self.to_bytes()
        if self.mac is None:
            return content
        # Not `replace`, which would go through the body.
        before, _, rest = content.rpartition(b'"mac":' + msgspec.json.encode(self.mac))
        return before + _NO_MAC + rest


def sign_new(envelope: Envelope, key: bytes) -> Envelope:
    """As `Envelope.sign`, of an *envelope* without a MAC that nobody else has yet: it is signed itself.

    That saves a copy.
    """
    assert key, "without a key a MAC is a plain hash, which everybody can make"
    assert envelope.mac is None, "it would be part of what is signed"
    unsigned = msgspec.json.encode(envelope)
    _put_mac(envelope, mac := _mac(unsigned, key))
    before, _, rest = unsigned.rpartition(_NO_MAC)
    _put_bytes(envelope, b'%b"mac":"%b"%b' % (before, mac.encode(), rest))
    return envelope


def _mac(unsigned: bytes, key: bytes) -> str:
    return hashlib.blake2b(unsigned, key=key, digest_size=MAC_SIZE).hexdigest()


def _copy(envelope: Envelope) -> Envelope:
    # At a quarter of the price of `attrs.evolve`, which looks at the class and checks every member again.
    copy = object.__new__(Envelope)
    for _ in map(operator.call, _PUTS, itertools.repeat(copy), _values(envelope)):
        pass
    return copy


_MEMBERS = tuple(field.name for field in attrs.fields(Envelope))
_PUTS = tuple(Envelope.__dict__[name].__set__ for name in _MEMBERS)
_put_mac, _put_bytes = Envelope.__dict__["mac"].__set__, _Encoded.__dict__["_bytes"].__set__
"""As `object.__setattr__`, without looking the member up."""
_values = operator.attrgetter(*_MEMBERS)
_decoder = msgspec.json.Decoder(Envelope)
