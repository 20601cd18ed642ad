"""A request body is the join of the pieces of a prefix, with cache markers spliced in on the way."""

from collections.abc import Sequence

import attrs

from coterie.agents.conversation.markers import Marker, Ttl
from coterie.agents.conversation.prefix import Prefix
from coterie.agents.conversation.segments import closing

_CACHE_CONTROL: dict[Ttl, bytes] = {
    "5m": b'"cache_control":{"type":"ephemeral"}',
    "1h": b'"cache_control":{"type":"ephemeral","ttl":"1h"}',
}


@attrs.frozen(kw_only=True)
class Rendered:
    """One request, ready to be posted; hand it to `Conversation.sent` when its response has begun."""

    body: bytes
    marks: tuple[int, ...]
    """The segments that carry a cache marker."""
    epoch: int


def render_body(prefix: Prefix, markers: Sequence[Marker], *, max_tokens: int, stream: bool) -> bytes:
    """The body of a request: C-level copies and one join, whatever the length of the history.

    Raises `ValueError` when there is no message: the API takes no request without one.
    """
    last = prefix.last
    if last is None or last.section != "messages":
        raise ValueError("a conversation without messages cannot be sent")
    pieces = prefix.pieces
    for marker in markers:
        data = 2 * marker.index + 1
        pieces[data] = splice_marker(pieces[data], marker.ttl)
    start = b'{"max_tokens":%d,"stream":%s,' % (max_tokens, b"true" if stream else b"false")
    return b"".join([start, prefix.header.parameters(), *pieces, closing(last.section), b"}"])


def splice_marker(data: bytes, ttl: Ttl) -> bytes:
    """The JSON object *data* with a cache marker as its last member."""
    is_empty = not data[1:-1].strip()
    return data[:-1] + (b"" if is_empty else b",") + _CACHE_CONTROL[ttl] + b"}"
