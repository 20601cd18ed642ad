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
"""Messages that may wait for the other end to read; it has hung, or is stopped, when there are more."""
FLUSH_SECONDS = 1.0
"""Seconds that messages sent before the end of the block may take to leave."""

Heard = TypeVar("Heard")
Heard_co = TypeVar("Heard_co", covariant=True)


class MessageChannel(Protocol[Heard_co]):
    """A channel that carries messages in order; one task receives, any may send."""

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Send *message* behind all that was sent before. Raises `ControlLost`, and `FrameTooLarge` above *limit*."""
        ...

    async def receive(self) -> Heard_co | None:
        """Return the next message; None when the other end has closed. Raises `ControlLost` for what is none."""
        ...


def encode_frame(message: msgspec.Struct, limit: int = FRAME_LIMIT) -> bytes:
    """Return the bytes of *message*. Raises `FrameTooLarge` if there are more than *limit*."""
    frame = msgspec.json.encode(message)
    if len(frame) > limit:
        raise FrameTooLarge(f"a message of {len(frame):,} bytes cannot be sent: at most {limit:,} can")
    return frame


@attrs.define(eq=False)
class SocketChannel(Generic[Heard]):
    """A `MessageChannel` on a socket, made by `open_channel`."""

    _stream: trio.SocketStream
    _outgoing: trio.MemorySendChannel[bytes]
    _decoder: msgspec.json.Decoder[Heard]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """As `MessageChannel.send`."""
        frame = encode_frame(message, limit)
        try:
            self._outgoing.send_nowait(frame)
        except trio.WouldBlock as exc:
            raise ControlLost(f"{OUTGOING_LIMIT:,} messages wait, and the other end does not listen") from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise ControlLost("the other end has gone") from exc

    async def receive(self) -> Heard | None:
        """As `MessageChannel.receive`."""
        try:
            frame = await read_frame(self._stream)
            return None if frame is None else self._decoder.decode(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None  # killed in the middle of a frame: nothing more will come, which is all one can know
        except (PeerInvalid, msgspec.DecodeError) as exc:
            raise ControlLost(str(exc)) from exc


@asynccontextmanager
async def open_channel(
    stream: trio.SocketStream, decoder: msgspec.json.Decoder[Heard]
) -> AsyncIterator[SocketChannel[Heard]]:
    """Open a channel on *stream* until the block ends, which closes it; *decoder* decodes what the other end sends.

    What was sent before the end of the block leaves, if the other end reads it within `FLUSH_SECONDS`.
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
    # A process that is cancelled says so in its last messages; the end of the block sets the deadline.
    with unsent, trio.CancelScope(shield=True) as scope:
        task_status.started(scope)
        try:
            async for frame in unsent:
                await write_frame(stream, frame)
        except trio.BrokenResourceError:
            return  # the other end has gone, as the next task that receives or sends finds out
