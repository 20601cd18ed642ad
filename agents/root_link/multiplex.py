"""Channels inside a channel, so that several agents in one process share the connection of the process to the root."""

from collections.abc import Callable
from typing import Generic

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.channel import OUTGOING_LIMIT, Received, encode_frame
from coterie.agents.root_link.messages import RelayedMessage
from coterie.agents.root_link.wire_format import WireMessage
from coterie.framing import FRAME_LIMIT


@attrs.define(eq=False)
class SubChannel(Generic[Received]):
    """`MessageChannel` whose frames travel in another channel, tagged by number. Created by `SubChannels.open`."""

    _number: int
    _send: Callable[[WireMessage], None]
    _incoming: trio.MemoryReceiveChannel[msgspec.Raw]
    _decoder: msgspec.json.Decoder[Received]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Send *message* through the outer channel; lost if the peer has closed the inner one. Raises `ControlLost`."""
        self._send(RelayedMessage(line=self._number, said=msgspec.Raw(encode_frame(message, limit))))

    async def receive(self) -> Received | None:
        """Wait for the next message; None if this channel is closed. Raises `ControlLost` for an invalid message."""
        try:
            return self._decoder.decode(await self._incoming.receive())
        except trio.EndOfChannel:
            return None
        except msgspec.DecodeError as exc:
            raise ControlLost(str(exc)) from exc


@attrs.define(eq=False)
class SubChannels(Generic[Received]):
    """All channels inside one outer channel, at one end of it. The task that reads the outer channel calls `handle`."""

    _send: Callable[[WireMessage], None]
    """Function that sends a message on the outer channel."""
    _decoder: msgspec.json.Decoder[Received]
    _open: dict[int, trio.MemorySendChannel[msgspec.Raw]] = attrs.field(factory=dict, init=False)

    def open(self, number: int) -> SubChannel[Received]:
        """Open this end of the inner channel *number*, and return it. The peer opens its end with the same number."""
        # As large as the queue of a socket: one task receives for all channels, and must not block on one of them.
        incoming, received = trio.open_memory_channel[msgspec.Raw](OUTGOING_LIMIT)
        self._open[number] = incoming
        return SubChannel(number, self._send, received, self._decoder)

    def handle(self, message: RelayedMessage) -> None:
        """Queue the content of *message* for its inner channel; drop it if that is closed. A full queue closes it."""
        try:
            if (incoming := self._open.get(message.line)) is not None:
                incoming.send_nowait(message.said)
        except trio.WouldBlock:
            self.close(message.line)

    def close(self, number: int) -> None:
        """Close inner channel *number*. Its reader still gets the queued messages, then None. No-op if it is closed."""
        if (incoming := self._open.pop(number, None)) is not None:
            incoming.close()

    def close_all(self) -> None:
        """Close every inner channel as `close` does, because the outer channel has ended."""
        for number in tuple(self._open):
            self.close(number)
