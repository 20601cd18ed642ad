"""A reply that comes whole, read as the stream it would have been: the API streams none that asks for no output."""

from collections.abc import Iterator

import attrs
import msgspec


@attrs.define(eq=False)
class WholeCutter:
    """Takes the bytes of a reply without content, and gives the events of its beginning and its end."""

    _received: bytearray = attrs.field(factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take *chunk*; once the reply is whole, yield the data of each event."""
        self._received += chunk
        try:
            message = msgspec.json.decode(self._received, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return  # not whole yet; one that never is has not begun, for whoever waits for its events
        yield msgspec.json.encode({"type": "message_start", "message": message})
        end = {"stop_reason": message.get("stop_reason")}
        yield msgspec.json.encode({"type": "message_delta", "delta": end, "usage": message.get("usage")})
        yield b'{"type":"message_stop"}'
