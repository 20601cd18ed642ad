"""Parser of server-sent events in a stream of byte chunks.

The SDK's typed events cost more CPU time than the rest of a turn; a reply needs only the bytes.
"""

from collections.abc import Iterator

import attrs

from coterie.agents.errors import ReplyMalformed

EVENT_LIMIT = 64 * 1024 * 1024
"""Size limit of one event in bytes."""


@attrs.define(eq=False)
class SseParser:
    """Incremental parser: fed with chunks, it yields the `data` of each complete event, in order.

    A chunk may end anywhere, also inside a line ending. Comments, `event:` and other fields are skipped, because the
    API repeats the name of the event in its data.
    """

    _rest: bytes = b""
    _ends_with_cr: bool = False
    """True if the last chunk may have ended in the middle of a CRLF."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that *chunk* completes. Raises `ReplyMalformed` for a larger event."""
        if chunk:
            rest = chunk.removeprefix(b"\n") if self._ends_with_cr else chunk
            chunk, self._ends_with_cr = rest, chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        *events, self._rest = text.split(b"\n\n")
        if len(self._rest) > EVENT_LIMIT:
            raise ReplyMalformed(f"the API sent an event of more than {EVENT_LIMIT:,} bytes")
        for event in events:
            lines = (line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
            if data := b"\n".join(lines):
                yield data
