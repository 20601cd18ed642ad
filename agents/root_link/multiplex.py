"""Channels inside a channel, for several agents in one process."""

from collections.abc import Callable
from typing import Generic

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.channel import OUTGOING_LIMIT, Heard, encode_frame
from coterie.agents.root_link.messages import RelayedMessage
from coterie.agents.root_link.wire_format import WireMessage
from coterie.framing import FRAME_LIMIT


@attrs.define(eq=False)
class SubChannel(Generic[Heard]):
    """A `MessageChannel` inside another one, made by `SubChannels.open`."""

    _number: int
    _say: Callable[[WireMessage], None]
    _incoming: trio.MemoryReceiveChannel[msgspec.Raw]
    _decoder: msgspec.json.Decoder[Heard]

    def send(self, message: msgspec.Struct, limit: int = FRAME_LIMIT) -> None:
        """As `MessageChannel.send`. An end that has closed ignores it."""
        self._say(RelayedMessage(line=self._number, said=msgspec.Raw(encode_frame(message, limit))))

    async def receive(self) -> Heard | None:
        """As `MessageChannel.receive`."""
        try:
            return self._decoder.decode(await self._incoming.receive())
        except trio.EndOfChannel:
            return None
        except msgspec.DecodeError as exc:
            raise ControlLost(str(exc)) from exc


@attrs.define(eq=False)
class SubChannels(Generic[Heard]):
    """The near ends of all channels inside one. Whoever receives on that one passes on what is for them."""

    _say: Callable[[WireMessage], None]
    """Sends on the channel that they are inside of."""
    _decoder: msgspec.json.Decoder[Heard]
    _open: dict[int, trio.MemorySendChannel[msgspec.Raw]] = attrs.field(factory=dict, init=False)

    def open(self, number: int) -> SubChannel[Heard]:
        """Return the near end of a new channel; it receives until it is closed here."""
        # As many as may wait for a socket: one task receives for all of them, and must not wait for any.
        incoming, heard = trio.open_memory_channel[msgspec.Raw](OUTGOING_LIMIT)
        self._open[number] = incoming
        return SubChannel(number, self._say, heard, self._decoder)

    def handle(self, word: RelayedMessage) -> None:
        """Pass *word* to its channel. One that does not receive is closed, and one that is closed receives nothing."""
        if (incoming := self._open.get(word.line)) is None:
            return
        try:
            incoming.send_nowait(word.said)
        except trio.WouldBlock:
            self.close(word.line)

    def close(self, number: int) -> None:
        """Let a channel receive what was sent so far, and then its end; nothing happens if it is closed."""
        if (incoming := self._open.pop(number, None)) is not None:
            incoming.close()

    def close_all(self) -> None:
        """Close every channel."""
        for number in tuple(self._open):
            self.close(number)
