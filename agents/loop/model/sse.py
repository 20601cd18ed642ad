"""Parser of server-sent events in a stream of byte chunks.

The SDK's typed events cost more than the rest of a turn together; the bytes are all the reply needs.
"""

from collections.abc import Iterator

import attrs

from coterie.agents.errors import ReplyMalformed

EVENT_LIMIT = 64 * 1024 * 1024
"""Bytes a single event may have; a stream beyond it is not one of ours."""


@attrs.define(eq=False)
class SseParser:
    """Feed it chunks; it gives the `data` of each whole event, in order.

    A chunk may end anywhere, also inside a line ending. Comments, `event:` and other fields are skipped, because the
    API repeats the event's name in its data.
    """

    _rest: bytes = b""
    _ends_with_cr: bool = False
    """Whether the last chunk may have ended with half of a CRLF."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of every event that *chunk* completes. Raises `ReplyMalformed` for an event without end."""
        if chunk:
            rest = chunk.removeprefix(b"\n") if self._ends_with_cr else chunk
            chunk, self._ends_with_cr = rest, chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        *events, self._rest = text.split(b"\n\n")
        if len(self._rest) > EVENT_LIMIT:
            raise ReplyMalformed(f"an event of more than {EVENT_LIMIT} bytes")
        for event in events:
            if data := _data(event):
                yield data


def _data(event: bytes) -> bytes:
    lines = (line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(lines)
