"""Channel between two processes of a session, which carries messages as JSON, by a queue and a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost, FrameTooLarge
from coterie.framing import FRAME_LIMIT, PeerInvalid, read_frame, write_frame

OUTGOING_LIMIT = 1_000
"""Maximum number of messages that wait in a channel to be sent; with more, `send` fails: the other process hangs."""
FLUSH_SECONDS = 1.0
"""Maximum seconds for sending the queued messages when a channel is closed; messages that remain are dropped."""

Received = TypeVar("Received")
Received_co = TypeVar("Received_co", covariant=True)


class MessageChannel(Protocol[Received_co]):
    """Protocol of one end of a channel that carries messages in order. One task receives; every task may send."""

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Append *message* to the queue of messages to send, and return without waiting.

        Raises `ControlLost` if the connection is closed or the queue is full, and `FrameTooLarge` above *limit* bytes.
        """

    async def receive(self) -> Received_co | None:
        """Wait for the next message; None if the peer has closed. Raises `ControlLost` if the message is invalid."""


def encode_frame(message: msgspec.Struct, limit: int = FRAME_LIMIT) -> bytes:
    """Return *message* as JSON, the content of one frame. Raises `FrameTooLarge` if it has more than *limit* bytes."""
    frame = msgspec.json.encode(message)
    if len(frame) > limit:
        raise FrameTooLarge(f"a message has {len(frame):,} bytes, but may have {limit:,}; put long text into a file")
    return frame


@attrs.define(eq=False)
class SocketChannel(Generic[Received]):
    """`MessageChannel` (one end of a channel that carries messages) over a socket. Created by `open_channel`."""

    _stream: trio.SocketStream
    _outgoing: trio.MemorySendChannel[bytes]
    _decoder: msgspec.json.Decoder[Received]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Queue *message*. Raises `ControlLost` if the peer has closed or the queue is full, and `FrameTooLarge`."""
        frame = encode_frame(message, limit)
        try:
            self._outgoing.send_nowait(frame)
        except trio.WouldBlock as exc:
            raise ControlLost(
                f"the other process hangs, {OUTGOING_LIMIT:,} messages wait for it; stop the session and resume it"
            ) from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise ControlLost("the other process has ended; root.log of the session shows if it crashed") from exc

    async def receive(self) -> Received | None:
        """Wait for the next message; None if the peer has closed or died. Raises `ControlLost` if it is invalid."""
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
    """Open a channel that sends messages over *stream* and decodes received ones with *decoder*.

    At the end of the block, queued messages are sent for at most `FLUSH_SECONDS`; then *stream* is closed.
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
