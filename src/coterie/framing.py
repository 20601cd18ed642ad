"""Length-prefixed frames on a byte stream: four bytes of length, then the payload."""

import attrs
import trio

FRAME_LIMIT = 1024 * 1024
"""Bytes of one frame, its length not counted."""

_LENGTH_SIZE = 4
_CHUNK = 65_536


@attrs.define(eq=False)
class PeerInvalid(Exception):
    """The peer of a connection is another user, sends invalid bytes, or is too slow."""

    reason: str

    def __str__(self) -> str:
        return self.reason


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
