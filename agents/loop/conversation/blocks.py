"""Content blocks: the bytes of one JSON object, and the facts read from them."""

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Section

MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result", "compaction"})
"""Types of message blocks that may carry a cache marker."""


@attrs.frozen(kw_only=True)
class Block:
    """A content block, system block or tool definition: its bytes, and a few facts parsed from them."""

    data: bytes
    type: str
    """Empty if the object has no type, as in most tool definitions."""
    is_markable: bool
    has_image: bool
    tool_use_id: str | None
    """Id of the call that a `tool_use` makes or a `tool_result` answers."""

    @classmethod
    def read(cls, data: bytes, section: Section = "messages") -> "Block":
        """Parse *data* as a block of *section*.

        Raises `ValueError` unless *data* is one JSON object without a cache marker: rendering a request adds markers.
        """
        check_object(data)
        shape = _shape.decode(data)
        if shape.cache_control is not msgspec.UNSET:
            raise ValueError("a block must not have a cache_control member; rendering adds it")
        return cls(
            data=data,
            type=shape.type or "",
            is_markable=_is_markable(shape, section),
            has_image=section == "messages" and _has_image(shape),
            tool_use_id={"tool_use": shape.id, "tool_result": shape.tool_use_id}.get(shape.type or ""),
        )


def text_block(text: str) -> bytes:
    """Encode *text* as a text block."""
    return msgspec.json.encode({"type": "text", "text": text})


def check_object(data: bytes) -> None:
    """Raise `ValueError` unless *data* is one JSON object in UTF-8, without surrounding whitespace."""
    if not (data.startswith(b"{") and data.endswith(b"}")):
        raise ValueError("not a JSON object")
    # The JSON decoder does not check the encoding of values that it skips, and a request must be UTF-8 throughout.
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
        # A deferred tool is not part of the prefix, so no cache entry can end at it.
        return not shape.defer_loading
    if shape.type == "text":
        return memoryview(shape.text).nbytes > len('""')
    return section == "system" or shape.type in MARKABLE


def _has_image(shape: _Shape, depth: int = 0) -> bool:
    if shape.type == "image":
        return True
    # The API allows images at most two levels deep: in a document in a tool result.
    if depth > 1 or shape.type not in ("tool_result", "document"):
        return False
    contents = [shape.content]
    if _first_byte(shape.source) == b"{":
        contents.append(_shape.decode(shape.source).content)
    parts = (part for content in contents if _first_byte(content) == b"[" for part in _shapes.decode(content))
    return any(_has_image(part, depth + 1) for part in parts)


def _first_byte(raw: msgspec.Raw) -> bytes:
    return memoryview(raw)[:1].tobytes()
