"""Content blocks: the bytes of one JSON object, and the facts read from them."""

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Section

MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result", "compaction"})
"""Types of message blocks that may carry a cache marker (prompt caching: what can be cached)."""


@attrs.frozen(kw_only=True)
class Block:
    """A content block, system block or tool definition: its bytes, and the few facts read from them."""

    data: bytes
    type: str
    """Empty when the object names none, as most tool definitions do."""
    is_markable: bool
    has_image: bool
    tool_use_id: str | None
    """The call that a `tool_use` makes or a `tool_result` answers."""

    @classmethod
    def read(cls, data: bytes, section: Section = "messages") -> "Block":
        """Take *data* as a block of *section*.

        Raises `ValueError` unless it is one JSON object without a cache marker: markers are put in when a
        request is rendered.
        """
        check_object(data)
        shape = _shape.decode(data)
        if shape.cache_control is not msgspec.UNSET:
            raise ValueError("a block must not carry cache_control of its own")
        return cls(
            data=data,
            type=shape.type or "",
            is_markable=_is_markable(shape, section),
            has_image=section == "messages" and _has_image(shape),
            tool_use_id={"tool_use": shape.id, "tool_result": shape.tool_use_id}.get(shape.type or ""),
        )


def text_block(text: str) -> bytes:
    """A text block as bytes, for what does not come from the model."""
    return msgspec.json.encode({"type": "text", "text": text})


def check_object(data: bytes) -> None:
    """Raise `ValueError` unless *data* is one JSON object in UTF-8, with nothing around it."""
    if not (data.startswith(b"{") and data.endswith(b"}")):
        raise ValueError("not a JSON object")
    # The decoder does not look inside what it skips, and a request must be UTF-8 throughout.
    data.decode()
    try:
        _anything.decode(data)
    except RecursionError as exc:
        raise ValueError("JSON is nested too deep") from exc


class _Shape(msgspec.Struct):
    # Raw members are slices: megabytes of text are checked but never made into strings.
    type: str | None = None
    id: str | None = None
    tool_use_id: str | None = None
    text: msgspec.Raw = msgspec.Raw(b'""')
    content: msgspec.Raw = msgspec.Raw(b"null")
    source: msgspec.Raw = msgspec.Raw(b"null")
    defer_loading: bool | None = None
    cache_control: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_anything = msgspec.json.Decoder(msgspec.Raw)
_shape = msgspec.json.Decoder(_Shape)
_shapes = msgspec.json.Decoder(list[_Shape])


def _is_markable(shape: _Shape, section: Section) -> bool:
    if section == "tools":
        # A deferred tool is not in the prefix, so nothing can end there.
        return not shape.defer_loading
    if shape.type == "text":
        return memoryview(shape.text).nbytes > len('""')
    return section == "system" or shape.type in MARKABLE


def _has_image(shape: _Shape, depth: int = 0) -> bool:
    if shape.type == "image":
        return True
    # A document in a tool result is as deep as an image can stand.
    if depth > 1 or shape.type not in ("tool_result", "document"):
        return False
    contents = [shape.content]
    if _first_byte(shape.source) == b"{":
        contents.append(_shape.decode(shape.source).content)
    parts = (part for content in contents if _first_byte(content) == b"[" for part in _shapes.decode(content))
    return any(_has_image(part, depth + 1) for part in parts)


def _first_byte(raw: msgspec.Raw) -> bytes:
    return memoryview(raw)[:1].tobytes()
