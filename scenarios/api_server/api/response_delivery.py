"""Sends a response, complete or streamed, with the delays of the script and with injected faults."""

from collections.abc import Iterator
from typing import Any

import msgspec
import trio

from coterie.scenarios.api_server.api.exchange import ApiExchange
from coterie.scenarios.api_server.api.response_builder import BuiltResponse
from coterie.scenarios.api_server.http.http_connection import ClientGone
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.http_faults import ERROR_STATUS, HttpFault
from coterie.scenarios.api_server.script.reply_selection import SelectedReply

CHARACTERS_PER_DELTA = 48
"""Characters in one event of streamed text, about a dozen tokens: most replies have several events, but few."""

_encode = msgspec.json.Encoder().encode

PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def encode_event(kind: str, **fields: Any) -> bytes:
    """Encode one server-sent event of the type *kind*. Its JSON data contains the type again, as in the API."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def message_events(message: dict[str, Any], cut_input: str | None = None) -> Iterator[bytes]:
    """Yield all events of *message*, from message_start to message_stop.

    *cut_input* is the truncated JSON input of the last block, a tool call cut at a token limit; None otherwise.
    """
    usage = message["usage"]
    opening = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    opening.pop("context_management", None)
    yield encode_event(
        "message_start", message={**opening, "usage": {**usage, "output_tokens": min(1, usage["output_tokens"])}}
    )
    last = len(message["content"]) - 1
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block, cut_input if index == last else None)
        yield encode_event("content_block_start", index=index, content_block=empty)
        if index == 0:
            yield PING
        for delta in deltas:
            yield encode_event("content_block_delta", index=index, delta=delta)
        yield encode_event("content_block_stop", index=index)
    ending = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    edits = {"context_management": message["context_management"]} if "context_management" in message else {}
    yield encode_event("message_delta", delta=ending, usage=usage, **edits)
    yield encode_event("message_stop")


def _deltas(block: Block, cut_input: str | None) -> tuple[Block, list[Block]]:
    """Return *block* with empty content, for its start event, and the deltas that add the content piece by piece."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signature]
        case "tool_use":
            text = _encode(block["input"]).decode() if cut_input is None else cut_input
            pieces = ["", *_pieces(text)]  # the API sends an empty first piece, which clients must accept
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


def _pieces(text: str) -> list[str]:
    return [text[start : start + CHARACTERS_PER_DELTA] for start in range(0, len(text), CHARACTERS_PER_DELTA)]


STATUS = {"rate_limit": (429, "rate_limit_error"), "overloaded": (529, "overloaded_error"), "error": (500, "api_error")}
"""Default HTTP status and error type of the fault kinds that send an error instead of the reply."""


async def inject_before(fault: HttpFault, respond: Responder) -> None:
    """Apply *fault* if it replaces the answer; do nothing for a fault that changes an answer while it is sent.

    Raises `ApiError` to send an error, or `ClientGone` after dropping the connection.
    """
    if fault.kind == "disconnect":
        await respond.abort()
        raise ClientGone
    if fault.kind in STATUS:
        status, kind = STATUS[fault.kind]
        headers = (
            () if fault.retry_after is None else (("retry-after", f"{fault.retry_after:.3f}".rstrip("0").rstrip(".")),)
        )
        kind = fault.error or kind
        raise ApiError(fault.status or status, kind, f"injected fault: {fault.kind}", headers)


async def send_response(
    exchange: ApiExchange,
    call: ApiRequest,
    message: dict[str, Any],
    built: BuiltResponse,
    selected: SelectedReply | None,
    fault: HttpFault | None,
) -> bool:
    """Send *message*, complete or as a stream, and apply a *fault* that interrupts or slows an answer.

    Returns False if an error event ended the stream. Raises `ApiError` for this fault without stream, and `ClientGone`.
    """
    if not call.stream:
        await _deliver_whole(exchange, message, fault)
        return True
    events = list(message_events(message, built.cut_input))
    pace = selected.reply.token_delay if selected else 0.0
    respond = exchange.respond
    await respond.start(200, exchange.all_headers("text/event-stream; charset=utf-8"))
    if fault is not None:
        events, pace = await _inject_within(fault, events, pace, respond)
    exchange.record()
    await _write(respond, events, pace)
    await respond.finish()
    return fault is None or fault.kind != "error_event"


async def _deliver_whole(exchange: ApiExchange, message: dict[str, Any], fault: HttpFault | None) -> None:
    respond = exchange.respond
    match fault.kind if fault else None:
        case "cut":
            await respond.abort()
            raise ClientGone
        case "error_event":
            assert fault is not None
            kind = fault.error or "overloaded_error"
            raise ApiError(ERROR_STATUS[kind], kind, "injected fault: error_event")
        case "stall" | "slow":
            assert fault is not None
            async with respond.while_connected():
                await trio.sleep(fault.seconds if fault.seconds is not None else float("inf"))
    await exchange.send(msgspec.json.encode(message))


async def _inject_within(
    fault: HttpFault, events: list[bytes], pace: float, respond: Responder
) -> tuple[list[bytes], float]:
    """Apply *fault* to a stream; return the events that are still to be sent, and the seconds between them."""
    if fault.kind == "slow":
        return events, fault.seconds or pace
    await _write(respond, events[: fault.after], pace)
    match fault.kind:
        case "cut":
            await respond.abort()
            raise ClientGone
        case "error_event":
            error = {"type": fault.error or "overloaded_error", "message": "injected fault: error_event"}
            return [encode_event("error", error=error)], 0.0
        case "stall":
            async with respond.while_connected():
                await trio.sleep(fault.seconds if fault.seconds is not None else float("inf"))
    return events[fault.after :], pace


async def _write(respond: Responder, events: list[bytes], pace: float) -> None:
    if not pace:
        await respond.write(b"".join(events))
        return
    async with respond.while_connected():
        for event in events:
            await respond.write(event)
            await trio.sleep(pace)
