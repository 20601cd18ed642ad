"""Message channel between two processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost, FrameTooLarge
from coterie.framing import FRAME_LIMIT, PeerInvalid, read_frame, write_frame

OUTGOING_LIMIT = 1_000
"""Maximum number of messages that wait to be sent; more mean that the other end hangs or is stopped."""
FLUSH_SECONDS = 1.0
"""Seconds for sending the remaining messages when a channel is closed."""

Received = TypeVar("Received")
Received_co = TypeVar("Received_co", covariant=True)


class MessageChannel(Protocol[Received_co]):
    """Channel that carries messages in order; one task receives, and every task may send."""

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Append *message* to the queue of messages to send.

        Raises `ControlLost`, and `FrameTooLarge` above *limit* bytes.
        """

    async def receive(self) -> Received_co | None:
        """Return the next message; None if the other end has closed. Raises `ControlLost` for an invalid message."""


def encode_frame(message: msgspec.Struct, limit: int = FRAME_LIMIT) -> bytes:
    """Encode *message*. Raises `FrameTooLarge` if there are more than *limit* bytes."""
    frame = msgspec.json.encode(message)
    if len(frame) > limit:
        raise FrameTooLarge(f"message is too large: {len(frame):,} bytes, at most {limit:,} are allowed")
    return frame


@attrs.define(eq=False)
class SocketChannel(Generic[Received]):
    """A `MessageChannel` on a socket, created by `open_channel`."""

    _stream: trio.SocketStream
    _outgoing: trio.MemorySendChannel[bytes]
    _decoder: msgspec.json.Decoder[Received]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Queue *message* for the socket; as `MessageChannel.send`."""
        frame = encode_frame(message, limit)
        try:
            self._outgoing.send_nowait(frame)
        except trio.WouldBlock as exc:
            raise ControlLost(
                f"the process at the other end does not read: {OUTGOING_LIMIT:,} messages are waiting"
            ) from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise ControlLost("the process at the other end has closed the connection") from exc

    async def receive(self) -> Received | None:
        """Read the next frame and decode it; as `MessageChannel.receive`."""
        try:
            frame = await read_frame(self._stream)
            return None if frame is None else self._decoder.decode(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None  # The peer may have been killed in the middle of a frame; there is nothing more to read.
        except (PeerInvalid, msgspec.DecodeError) as exc:
            raise ControlLost(str(exc)) from exc


@asynccontextmanager
async def open_channel(
    stream: trio.SocketStream, decoder: msgspec.json.Decoder[Received]
) -> AsyncIterator[SocketChannel[Received]]:
    """Open a channel on *stream* until the block ends, which closes *stream*; *decoder* decodes incoming messages.

    Messages that wait at the end of the block are still sent, if the other end reads them within `FLUSH_SECONDS`.
    """
    outgoing, unsent = trio.open_memory_channel[bytes](OUTGOING_LIMIT)
    async with stream, trio.open_nursery() as nursery:
        sending = await nursery.start(_send_all, stream, unsent)
        try:
            yield SocketChannel(stream, outgoing, decoder)
        finally:
            outgoing.close()
            sending.deadline = trio.current_time() + FLUSH_SECONDS


async def _send_all(
    stream: trio.SocketStream,
    unsent: trio.MemoryReceiveChannel[bytes],
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    # Shielded, because a cancelled process reports its end in its last messages; the end of the block sets the
    # deadline.
    with unsent, trio.CancelScope(shield=True) as scope:
        task_status.started(scope)
        try:
            async for frame in unsent:
                await write_frame(stream, frame)
        except trio.BrokenResourceError:
            return  # The next send or receive reports that the other end has gone.
