"""What one agent sends another: a message is written once, never edited, and safe to deliver twice."""

import hashlib
import hmac
import math
from typing import Literal

import attrs
import msgspec

from coterie.mailbox.address import check_name
from coterie.mailbox.errors import EnvelopeCorrupt, NameInvalid
from coterie.mailbox.ids import MessageId, new_message_id

VERSION = 1
MAC_SIZE = 16

SenderKind = Literal["human", "lead", "peer", "system"]
Kind = Literal[
    "message",
    "shutdown_request",
    "shutdown_response",
    "plan_approval_request",
    "plan_approval_response",
    "permission_request",
    "permission_response",
    "task_assignment",
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


def _check_time(_envelope: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    # JSON has no word for these, so they would not come back as they were.
    if not math.isfinite(value):
        raise ValueError(f"{attribute.name} is {value}, which is no time")


@attrs.frozen(kw_only=True)
class Envelope:
    """One message for one recipient."""

    sender: Sender
    recipient: Recipient
    sequence: int
    """Counts what this start of the sender sends to this name, from 1."""
    kind: Kind = "message"
    body: str
    """Text; of a structured kind, a JSON object."""
    summary: str | None = None
    in_reply_to: MessageId | None = None
    group: str | None = None
    """Shared by the messages of one broadcast."""
    created: float = attrs.field(validator=_check_time)
    """Seconds since 1970."""
    expires: float | None = attrs.field(default=None, validator=attrs.validators.optional(_check_time))
    """From then on it is dead; None never."""
    traceparent: str | None = None
    """W3C trace context."""
    id: MessageId = attrs.field(factory=new_message_id)
    """Names the message for de-duplication; assigned by the sender."""
    v: int = VERSION
    mac: str | None = None
    """Proves that the sender wrote it; see `sign`."""

    def to_bytes(self) -> bytes:
        """One JSON object without a newline."""
        return msgspec.json.encode(self)

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

    def sign(self, key: bytes) -> "Envelope":
        """The same message with a MAC that only a holder of *key*, which is not empty, can make."""
        assert key, "without a key a MAC is a plain hash, which everybody can make"
        return attrs.evolve(self, mac=self._mac(key))

    def is_signed_with(self, key: bytes) -> bool:
        """Whether its MAC was made with *key* over all that it says."""
        return self.mac is not None and hmac.compare_digest(self.mac.encode(), self._mac(key).encode())

    def is_expired(self, now: float) -> bool:
        """Whether nobody should get it any more."""
        return self.expires is not None and now >= self.expires

    def _mac(self, key: bytes) -> str:
        unsigned = self.to_bytes()
        if self.mac is not None:
            # A quote inside a string is escaped, so this stands in one place only. Evolving costs more than signing.
            unsigned = unsigned.replace(b'"mac":' + msgspec.json.encode(self.mac), b'"mac":null', 1)
        return hashlib.blake2b(unsigned, key=key, digest_size=MAC_SIZE).hexdigest()


_decoder = msgspec.json.Decoder(Envelope)
