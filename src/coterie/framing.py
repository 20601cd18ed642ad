"""Frames, the messages on a byte stream: each frame is four bytes of length, then the payload."""

import trio

from coterie.errors import ReasonError

FRAME_LIMIT = 1024 * 1024
"""Maximum payload in bytes of a frame that `read_frame` accepts, unless its caller passes another limit."""

_LENGTH_SIZE = 4
_CHUNK = 65_536


class PeerInvalid(ReasonError):
    """The process at the other end of a connection belongs to another user, sends invalid bytes, or is too slow."""


async def write_frame(stream: trio.abc.SendStream, payload: bytes) -> None:
    """Send *payload* as one frame. After cancellation the stream is unusable, because a frame may be incomplete."""
    await stream.send_all(len(payload).to_bytes(_LENGTH_SIZE) + payload)


async def read_frame(stream: trio.abc.ReceiveStream, limit: int = FRAME_LIMIT) -> bytes | None:
    """Read the payload of the next frame, at most *limit* bytes; None if the stream ends between two frames.

    Raises `PeerInvalid` for a frame that is empty, too long or cut off. After cancellation the stream is unusable.
    """
    head = await _read_exactly(stream, _LENGTH_SIZE)
    if not head:
        return None
    size = int.from_bytes(head)
    if len(head) < _LENGTH_SIZE or not 0 < size <= limit:
        raise PeerInvalid(
            f"invalid frame from the other process: expected 1 to {limit:,} bytes; use one version of Coterie for both"
        )
    payload = await _read_exactly(stream, size)
    if len(payload) < size:
        raise PeerInvalid(
            f"incomplete frame: the connection ended after {len(payload):,} of {size:,} bytes; send it again"
        )
    return payload


async def _read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """Wait for *size* bytes and return them; fewer only if the stream ends before."""
    gathered = bytearray()
    while len(gathered) < size:
        chunk = await stream.receive_some(min(size - len(gathered), _CHUNK))
        if not chunk:
            break
        gathered += chunk
    return bytes(gathered)
