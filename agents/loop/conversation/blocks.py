"""Content blocks of model requests: each is the bytes of one JSON object, with some properties parsed from them."""

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Section

MARKABLE = frozenset({"text", "image", "document", "tool_use", "tool_result", "compaction"})
"""Types of message blocks that may carry a cache marker (`cache_control`: the API caches the prompt up to there)."""


@attrs.frozen(kw_only=True)
class Block:
    """A content block, system block or tool definition of a model request: its JSON bytes, and parsed properties."""

    data: bytes
    type: str
    """Value of the JSON member `type`, such as `text`; empty if it is missing, as in most tool definitions."""
    is_markable: bool
    has_image: bool
    tool_use_id: str | None
    """Id of the tool call, if the block is a `tool_use` (the call) or a `tool_result` (its answer); else None."""

    @classmethod
    def read(cls, data: bytes, section: Section = "messages") -> "Block":
        """Create a block from its JSON bytes *data*; *section* is the part of the request in which it will be.

        Raises `ValueError` unless *data* is one JSON object without `cache_control`, which rendering a request adds.
        """
        check_object(data)
        shape = _shape.decode(data)
        if shape.cache_control is not msgspec.UNSET:
            raise ValueError("the block has a member cache_control; remove it, because rendering a request adds it")
        return cls(
            data=data,
            type=shape.type or "",
            is_markable=_is_markable(shape, section),
            has_image=section == "messages" and _has_image(shape),
            tool_use_id={"tool_use": shape.id, "tool_result": shape.tool_use_id}.get(shape.type or ""),
        )


def text_block(text: str) -> bytes:
    """Return the JSON bytes of a content block of type `text` that contains *text*."""
    return msgspec.json.encode({"type": "text", "text": text})


def check_object(data: bytes) -> None:
    """Raise `ValueError` unless *data* is one JSON object in UTF-8, without surrounding whitespace."""
    if not (data.startswith(b"{") and data.endswith(b"}")):
        raise ValueError(f"the data must be one JSON object without whitespace around it, not {data[:40]!r}")
    # The JSON decoder does not check the encoding of values that it skips, and a request must be UTF-8 throughout.
    data.decode()
    try:
        _anything.decode(data)
    except RecursionError as exc:
        raise ValueError(f"the JSON object is nested too deeply; use fewer levels: {data[:40]!r}") from exc


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
