"""Channels inside a channel, for several agents in one process."""

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
    """A `MessageChannel` inside another channel, created by `SubChannels.open`."""

    _number: int
    _send: Callable[[WireMessage], None]
    _incoming: trio.MemoryReceiveChannel[msgspec.Raw]
    _decoder: msgspec.json.Decoder[Received]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """Send *message* on the outer channel; as `MessageChannel.send`. A closed other end ignores the message."""
        self._send(RelayedMessage(line=self._number, said=msgspec.Raw(encode_frame(message, limit))))

    async def receive(self) -> Received | None:
        """Return the next message; as `MessageChannel.receive`."""
        try:
            return self._decoder.decode(await self._incoming.receive())
        except trio.EndOfChannel:
            return None
        except msgspec.DecodeError as exc:
            raise ControlLost(str(exc)) from exc


@attrs.define(eq=False)
class SubChannels(Generic[Received]):
    """Local ends of all channels inside an outer channel. The receiver of the outer channel calls `handle`."""

    _send: Callable[[WireMessage], None]
    """Sends on the outer channel."""
    _decoder: msgspec.json.Decoder[Received]
    _open: dict[int, trio.MemorySendChannel[msgspec.Raw]] = attrs.field(factory=dict, init=False)

    def open(self, number: int) -> SubChannel[Received]:
        """Open the local end of a new channel; it receives until `close` is called with its number."""
        # As large as the queue of a socket: one task receives for all channels, and must not block on one of them.
        incoming, received = trio.open_memory_channel[msgspec.Raw](OUTGOING_LIMIT)
        self._open[number] = incoming
        return SubChannel(number, self._send, received, self._decoder)

    def handle(self, message: RelayedMessage) -> None:
        """Pass *message* to its channel, unless that is closed. A channel with a full queue is closed."""
        try:
            if (incoming := self._open.get(message.line)) is not None:
                incoming.send_nowait(message.said)
        except trio.WouldBlock:
            self.close(message.line)

    def close(self, number: int) -> None:
        """Close a channel after the messages received so far; does nothing if the channel is closed."""
        if (incoming := self._open.pop(number, None)) is not None:
            incoming.close()

    def close_all(self) -> None:
        """Close every channel."""
        for number in tuple(self._open):
            self.close(number)
