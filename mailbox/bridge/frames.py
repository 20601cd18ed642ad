"""The bridge's language: a frame is four bytes of length and a JSON object; a question gets one answer.

The side that connects says `Hello` and is answered; then it sends envelopes, one at a time, each answered before the
next. Bytes that cannot be read are answered with one refusal, and the connection is closed.
"""

from typing import Any, Literal, Self, TypeVar

import attrs
import msgspec
import trio

from coterie.mailbox.errors import MailboxError
from coterie.mailbox.ids import MessageId

VERSION = 1
FRAME_LIMIT = 1024 * 1024
"""Bytes of one frame, its length not counted."""

_LENGTH_SIZE = 4
_CHUNK = 65_536

_T = TypeVar("_T")

Outcome = Literal["welcome", "accepted", "held", "refused", "later"]


@attrs.define(eq=False)
class PeerInvalid(MailboxError):
    """Who is on the other end cannot be talked to: another user, another language, or too slow."""

    reason: str

    def __str__(self) -> str:
        return self.reason


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
class Answer:
    """What became of a greeting or of a message."""

    outcome: Outcome
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
    def is_taken(self) -> bool:
        """Whether the message is the other session's now."""
        return self.outcome in ("accepted", "held")

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote. Raises `PeerInvalid`."""
        return _decode(data, cls)


async def write_frame(stream: trio.abc.SendStream, payload: bytes) -> None:
    """Send *payload* as one frame. Cancelled, the stream is of no more use."""
    await stream.send_all(len(payload).to_bytes(_LENGTH_SIZE) + payload)


async def read_frame(stream: trio.abc.ReceiveStream, limit: int = FRAME_LIMIT) -> bytes | None:
    """The next frame, of at most *limit* bytes; None at an orderly end. Holds no more than one frame.

    Raises `PeerInvalid` for a frame that is empty, too long or cut off. Cancelled, the stream is of no more use.
    """
    head = await _read_exactly(stream, _LENGTH_SIZE)
    if not head:
        return None
    size = int.from_bytes(head)
    if len(head) < _LENGTH_SIZE or not 0 < size <= limit:
        raise PeerInvalid(f"not a frame: it has 1 to {limit:,} bytes, and says so in four bytes before them")
    payload = await _read_exactly(stream, size)
    if len(payload) < size:
        raise PeerInvalid(f"a frame of {size:,} bytes ended after {len(payload):,}")
    return payload


async def _read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """*size* bytes, or what came before the end."""
    gathered = bytearray()
    while len(gathered) < size:
        chunk = await stream.receive_some(min(size - len(gathered), _CHUNK))
        if not chunk:
            break
        gathered += chunk
    return bytes(gathered)


def _decode(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerInvalid(f"it does not read as {kind.__name__.lower()}: {exc}") from exc
