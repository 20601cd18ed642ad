"""Server-sent events that carry a finished message."""

from collections.abc import Iterator
from typing import Any

import msgspec

from coterie.scenarios.api_server.request.api_request import Block

CHARACTERS_PER_DELTA = 48
"""About a dozen tokens: enough pieces to exercise a client, few enough to stay cheap."""

_encode = msgspec.json.Encoder().encode

PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def encode_event(kind: str, **fields: Any) -> bytes:
    """One event; its data repeats its name, as the API's does."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def message_events(message: dict[str, Any], cut_input: str | None = None) -> Iterator[bytes]:
    """All events of *message*, from message_start to message_stop.

    *cut_input* is the JSON text at which the last block, a tool call, was cut off by max_tokens.
    """
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    opening.pop("context_management", None)
    yield encode_event(
        "message_start", message={**opening, "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])}}
    )
    last = len(message["content"]) - 1
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block, cut_input if index == last else None)
    ending = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    edits = {"context_management": message["context_management"]} if "context_management" in message else {}
    yield encode_event("message_delta", delta=ending, usage=usage, **edits)
    yield encode_event("message_stop")


def error_event(kind: str, message: str) -> bytes:
    """An error after status 200."""
    return encode_event("error", error={"type": kind, "message": message})


def _block_events(index: int, block: Block, cut_input: str | None) -> Iterator[bytes]:
    empty, deltas = _deltas(block, cut_input)
    yield encode_event("content_block_start", index=index, content_block=empty)
    if index == 0:
        yield PING
    for delta in deltas:
        yield encode_event("content_block_delta", index=index, delta=delta)
    yield encode_event("content_block_stop", index=index)


def _deltas(block: Block, cut_input: str | None) -> tuple[Block, list[Block]]:
    """The block as it starts, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signature]
        case "tool_use":
            text = _encode(block["input"]).decode() if cut_input is None else cut_input
            pieces = ["", *_pieces(text)]  # the API's first piece is empty, and clients must bear it
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHARACTERS_PER_DELTA] for start in range(0, len(text), CHARACTERS_PER_DELTA)]
