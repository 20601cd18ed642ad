"""Sends a response whole or as a stream, at its pace, with injected faults."""

from typing import Any

import msgspec
import trio

from coterie.scenarios.api_server.api.exchange import ApiExchange
from coterie.scenarios.api_server.api.response_builder import BuiltResponse
from coterie.scenarios.api_server.api.sse_events import error_event, message_events
from coterie.scenarios.api_server.http.http_connection import ClientGone
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.request.api_request import ApiRequest
from coterie.scenarios.api_server.request.errors import ApiError
from coterie.scenarios.api_server.script.http_faults import ERROR_STATUS, HttpFault
from coterie.scenarios.api_server.script.reply_selection import SelectedReply

STATUS = {"rate_limit": (429, "rate_limit_error"), "overloaded": (529, "overloaded_error"), "error": (500, "api_error")}
"""Fault kind -> the answer it gives instead of a reply."""


async def inject_before(fault: HttpFault, respond: Responder) -> None:
    """Carry out a fault that takes the place of an answer; one that strikes later does nothing here.

    Raises `ApiError` for an error answer and `ClientGone` once the connection is dropped.
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
    composed: BuiltResponse,
    chosen: SelectedReply | None,
    fault: HttpFault | None,
) -> bool:
    """Send *message*; a fault that is left strikes in the middle of it.

    False if an error event came in place of its end.
    """
    if not call.stream:
        await _deliver_whole(exchange, message, fault)
        return True
    events = list(message_events(message, composed.cut_input))
    pace = chosen.reply.token_delay if chosen else 0.0
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
    """Carry out *fault* and return the events still to be written, and how fast."""
    if fault.kind == "slow":
        return events, fault.seconds or pace
    await _write(respond, events[: fault.after], pace)
    match fault.kind:
        case "cut":
            await respond.abort()
            raise ClientGone
        case "error_event":
            return [error_event(fault.error or "overloaded_error", "injected fault: error_event")], 0.0
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
