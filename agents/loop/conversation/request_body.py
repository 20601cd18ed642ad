"""Bodies of model requests: the stored bytes of a conversation, with cache markers inserted."""

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
    """Body of one model request. The sender passes the object to `Conversation.sent` when the response has begun."""

    chunks: tuple[bytes, ...]
    """Parts of the body, in order. Earlier requests share most of them in memory, so send them without joining them."""
    marks: tuple[int, ...]
    """Indexes of the segments (blocks of the conversation) that carry a cache marker (`cache_control`) here."""
    epoch: int
    max_tokens: int

    @property
    def body(self) -> bytes:
        """The whole body as one bytes object, a copy of all chunks."""
        return b"".join(self.chunks)


def render_chunks(
    prefix: Prefix, markers: Sequence[CacheMarker], *, max_tokens: int, stream: bool
) -> tuple[bytes, ...]:
    """Return the body of a model request in chunks: parameters, then the bytes of *prefix* with the cache *markers*.

    Large chunks without a marker are reused, not copied. Raises `ValueError` if *prefix* contains no message.
    """
    last = prefix.last
    if last is None or last.section != "messages":
        raise ValueError("a conversation without messages cannot be sent; append a user message first")
    marked = {marker.index: splice_marker(prefix[marker.index].data, marker.ttl) for marker in markers}
    chunks = prefix.chunks(marked)
    start = b'{"max_tokens":%d,"stream":%s,' % (max_tokens, b"true" if stream else b"false")
    # The first chunk and the last are the small ones.
    chunks[0] = b"".join((start, prefix.header.parameters(), chunks[0]))
    chunks[-1] += CLOSING[last.section] + b"}"
    return tuple(chunks)


def splice_marker(data: bytes, ttl: Ttl) -> bytes:
    """Return the JSON object *data* with a cache marker (`cache_control`) of lifetime *ttl* as its last member."""
    is_empty = not data[1:-1].strip()
    return data[:-1] + (b"" if is_empty else b",") + _CACHE_CONTROL[ttl] + b"}"
