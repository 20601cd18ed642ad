"""One end of a conversation: words come in order, and saying one never waits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import attrs
import msgspec
import trio

from coterie.agents.control.word import Word
from coterie.agents.errors import ControlLost
from coterie.mailbox.bridge.frames import PeerInvalid, read_frame, write_frame

UNSAID = 1_000
"""Words that may wait for the other end to read; it has hung, or is stopped, when there are more."""
FAREWELL = 1.0
"""Seconds that words said before the end of the block may take to leave."""

Heard = TypeVar("Heard")
Heard_co = TypeVar("Heard_co", covariant=True)


class Line(Protocol[Heard_co]):
    """What words go over; one task hears, any may speak."""

    def say(self, word: Word) -> None:
        """Let the other end hear *word* behind all that was said before. Raises `ControlLost`."""
        ...

    async def hear(self) -> Heard_co | None:
        """The next word; None when the other end has closed. Raises `ControlLost` for what is no word."""
        ...


@attrs.define(eq=False)
class SocketLine(Generic[Heard]):
    """A `Line` of its own, made by `open_line`."""

    _stream: trio.SocketStream
    _outgoing: trio.MemorySendChannel[Word]
    _decoder: msgspec.json.Decoder[Heard]

    def say(self, word: Word) -> None:
        """As `Line.say`."""
        try:
            self._outgoing.send_nowait(word)
        except trio.WouldBlock as exc:
            raise ControlLost(f"{UNSAID:,} words wait, and the other end does not listen") from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise ControlLost("the other end has gone") from exc

    async def hear(self) -> Heard | None:
        """As `Line.hear`."""
        try:
            frame = await read_frame(self._stream)
            return None if frame is None else self._decoder.decode(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None  # killed in the middle of a word: nothing more will come, which is all one can know
        except (PeerInvalid, msgspec.DecodeError) as exc:
            raise ControlLost(str(exc)) from exc


@asynccontextmanager
async def open_line(
    stream: trio.SocketStream, decoder: msgspec.json.Decoder[Heard]
) -> AsyncIterator[SocketLine[Heard]]:
    """Speak over *stream* until the block ends, which closes it; *decoder* reads what the other end says.

    What was said before the end of the block is sent, if the other end takes it within `FAREWELL` seconds.
    """
    outgoing, unsaid = trio.open_memory_channel[Word](UNSAID)
    async with stream, trio.open_nursery() as nursery:
        sending = await nursery.start(_send_all, stream, unsaid)
        try:
            yield SocketLine(stream, outgoing, decoder)
        finally:
            outgoing.close()
            sending.deadline = trio.current_time() + FAREWELL


async def _send_all(
    stream: trio.SocketStream,
    unsaid: trio.MemoryReceiveChannel[Word],
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    # Whoever is cancelled says so in its last words; the end of the block sets the deadline.
    with unsaid, trio.CancelScope(shield=True) as scope:
        task_status.started(scope)
        try:
            async for word in unsaid:
                await write_frame(stream, msgspec.json.encode(word))
        except trio.BrokenResourceError:
            return  # the other end has gone, as whoever hears or speaks next finds out
