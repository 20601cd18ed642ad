"""Request bodies: the bytes of a prefix with cache markers spliced in."""

from collections.abc import Sequence

import attrs

from coterie.agents.loop.conversation.cache_markers import CacheMarker
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.segment import CLOSING
from coterie.agents.loop.model.usage import Ttl

_CACHE_CONTROL: dict[Ttl, bytes] = {
    "5m": b'"cache_control":{"type":"ephemeral"}',
    "1h": b'"cache_control":{"type":"ephemeral","ttl":"1h"}',
}


@attrs.frozen(kw_only=True)
class RenderedRequest:
    """One request, ready to be sent; pass it to `Conversation.sent` when its response has begun."""

    chunks: tuple[bytes, ...]
    """The body in order. Most chunks are shared with earlier requests, so avoid joining them for large bodies."""
    marks: tuple[int, ...]
    """Indexes of the segments that carry a cache marker."""
    epoch: int
    max_tokens: int

    @property
    def body(self) -> bytes:
        """The whole body as one bytes object."""
        return b"".join(self.chunks)


def render_chunks(
    prefix: Prefix, markers: Sequence[CacheMarker], *, max_tokens: int, stream: bool
) -> tuple[bytes, ...]:
    """Render the body of a request; only chunks that carry a marker or are not full yet are joined again.

    Raises `ValueError` if there is no message, because the API accepts no such request.
    """
    last = prefix.last
    if last is None or last.section != "messages":
        raise ValueError("a conversation without messages cannot be sent")
    marked = {marker.index: splice_marker(prefix[marker.index].data, marker.ttl) for marker in markers}
    chunks = prefix.chunks(marked)
    start = b'{"max_tokens":%d,"stream":%s,' % (max_tokens, b"true" if stream else b"false")
    # The first chunk and the last are the small ones.
    chunks[0] = b"".join((start, prefix.header.parameters(), chunks[0]))
    chunks[-1] += CLOSING[last.section] + b"}"
    return tuple(chunks)


def splice_marker(data: bytes, ttl: Ttl) -> bytes:
    """Return the JSON object *data* with a cache marker as its last member."""
    is_empty = not data[1:-1].strip()
    return data[:-1] + (b"" if is_empty else b",") + _CACHE_CONTROL[ttl] + b"}"
